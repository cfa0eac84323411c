"""Guards may be judged by a judge: their state has it."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0044"
down_revision = "0043"

# What the way down takes with it: guards go on without their judge.
LOSES = (Loss("Rollout", "judges of guards", "state ? 'guard_judge'"),)

# What it takes from the release before: nothing, which writes no such key.
NARROWS = ()

# What operators notice of it.
NOTES = ("guards may be judged by a judge (UNDERSTUDY_GUARD_JUDGES)",)


def upgrade() -> None:
    """Let a guard's state have a judge."""
    run_script("0044_guard_judge.sql")


def downgrade() -> None:
    """Take it out of states."""
    run_script("0044_down.sql")
