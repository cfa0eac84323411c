"""Guards may be judged by metrics of an operator's own: their state has them."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0042"
down_revision = "0041"

# What the way down takes with it: guards go on without their metrics.
LOSES = (Loss("Rollout", "metrics that guards are judged by", "state ? 'guard_metrics'"),)

# What it takes from the release before: nothing, which writes no such key.
NARROWS = ()

# What operators notice of it.
NOTES = ("guards may be judged by metrics of an operator's own (UNDERSTUDY_GUARD_METRICS)",)


def upgrade() -> None:
    """Let a guard's state have metrics."""
    run_script("0042_guard_metrics.sql")


def downgrade() -> None:
    """Take them out of states."""
    run_script("0042_down.sql")
