"""What the monitor reads and writes: windows, its lease, the state of rollouts; rollback as one SQL call."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0002"
down_revision = "0001"

# What the way down takes with it.
LOSES = (
    Loss("PredictionWindow", "rows of PredictionWindow"),
    Loss("DriftHour", "rows of DriftHour"),
    Loss("MonitorLease", "rows of MonitorLease"),
    Loss("Rollout", "states of rollouts", "state <> '{}'"),
    Loss("ProxyInstance", "calls under way that proxies told of", "in_flight <> '{}'"),
)

# What it takes from the release before.
NARROWS = ("trigger rollout_touch on rollout may refuse what was done before",)


def upgrade() -> None:
    """Create them."""
    run_script("0002_control_loop.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0002_down.sql")
