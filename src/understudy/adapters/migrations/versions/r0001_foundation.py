"""The first design's four tables, what is added to them, the triggers and the monthly partitions."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0001"
down_revision = None

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


def upgrade() -> None:
    """Create everything."""
    for part in ("tables", "policy", "partitions", "views", "seal"):
        run_script(f"0001_{part}.sql")


def downgrade() -> None:
    """Drop everything, with all data."""
    run_script("0001_down.sql")
