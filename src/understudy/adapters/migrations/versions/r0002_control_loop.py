"""What the monitor reads and writes: windows, its lease, the state of rollouts; rollback as one SQL call."""

from pathlib import Path

from alembic import op

from understudy.adapters.migrations.losses import Loss

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

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

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create them."""
    _run_script("0002_control_loop.sql")


def downgrade() -> None:
    """Drop them."""
    _run_script("0002_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
