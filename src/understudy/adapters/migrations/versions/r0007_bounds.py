"""Every table of the control loop has a bound, and a rollout's row stays readable."""

from understudy.adapters.migrations.script import run_script

revision = "0007"
down_revision = "0006"

# What it takes from the release before.
NARROWS = (
    "index outcomeevent_received_at on outcomeevent is built while writers wait",
    "index policyaudit_changed_at on policyaudit is built while writers wait",
    "trigger policyaudit_guard on policyaudit fires at other times",
    "trigger policyaudit_guard_age on policyaudit may refuse what was done before",
    "trigger policychange_guard on policychange fires at other times",
    "trigger policychange_guard_age on policychange may refuse what was done before",
    "trigger rollout_guard on rollout may refuse what was done before",
    "trigger rollout_guard_new on rollout may refuse what was done before",
    "trigger rollout_no_truncate on rollout may refuse what was done before",
    "trigger spooloffset_guard on spooloffset fires at other times",
    "trigger spooloffset_guard_age on spooloffset may refuse what was done before",
)


def upgrade() -> None:
    """Let age end what it may, and guard the rest."""
    run_script("0007_bounds.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0007_down.sql")
