"""Gates: steps of a rollout that wait for a person or a service, and who may let them pass."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0033"
down_revision = "0032"

# What the way down takes with it: rollouts that wait at a gate, or are on their way to one, wait as paused ones.
LOSES = (
    Loss(
        "Rollout",
        "gates of rollouts, with approvals and answers",
        "plan ? 'gates' OR state ?| ARRAY['approved_step', 'gate'] OR state ->> 'waiting_for' IN ('approval', 'gate')",
    ),
)

# What it takes from the release before: it writes neither, so two triggers refuse nothing of it, and one tells nothing.
NARROWS = (
    "trigger rollout_approval on rollout may refuse what was done before",
    "trigger rollout_approval_new on rollout may refuse what was done before",
    "trigger rollout_notify_gate on rollout may refuse what was done before",
)

# What operators notice of it.
NOTES = (
    "plans may name gates, where a rollout waits for understudy rollout approve or for a service (UNDERSTUDY_GATES)",
)


def upgrade() -> None:
    """Let a state have an approval and answers of gates, and refuse those of logins that may not give them."""
    run_script("0033_gates.sql")


def downgrade() -> None:
    """Take both out of states."""
    run_script("0033_down.sql")
