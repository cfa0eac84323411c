"""Gates: steps of a rollout that wait for a person's approval, and who may give it."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0033"
down_revision = "0032"

# What the way down takes with it: rollouts that wait at a gate wait as paused ones.
LOSES = (
    Loss(
        "Rollout",
        "approvals of rollouts, and what they wait for",
        "state ? 'approved_step' OR state ->> 'waiting_for' = 'approval'",
    ),
)

# What it takes from the release before: it writes no approval, so the trigger never refuses what it does.
NARROWS = ("trigger rollout_approval on rollout may refuse what was done before",)

# What operators notice of it.
NOTES = ("plans may name gates, where a rollout waits for understudy rollout approve",)


def upgrade() -> None:
    """Let a state have an approval, and refuse that of the person who started the rollout where the plan says so."""
    run_script("0033_gates.sql")


def downgrade() -> None:
    """Take approvals out of states."""
    run_script("0033_down.sql")
