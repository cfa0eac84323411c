"""The first design's four tables, what is added to them, the triggers and the monthly partitions."""

from pathlib import Path

from alembic import op

from understudy.adapters.migrations.losses import Loss

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = (
    *("ModelVersion", "ModelEndpoint", "ServingPolicy", "PolicyAudit", "PolicyChange", "PredictionLog"),
    *("PredictionMetric", "SpoolOffset", "PredictionDeadLetter", "ApiKey", "ProxyInstance", "Rollout"),
    *("RolloutEvent", "Experiment", "OutcomeEvent", "AlertOutbox"),
)
# What the way down takes with it.
LOSES = (
    *(Loss(name, f"rows of {name}") for name in _TABLES),
    Loss(
        "pg_class",
        "tables of months that were taken out of PredictionLog",
        "relkind = 'r' AND relname ~ '^predictionlog_[0-9]{4}_[0-9]{2}_archived_[0-9]+$'",
    ),
)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create everything."""
    for part in ("tables", "policy", "partitions", "views", "seal"):
        _run_script(f"0001_{part}.sql")


def downgrade() -> None:
    """Drop everything, with all data."""
    _run_script("0001_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
