"""Inputs of sampled entities in the log: how many of them, where they lie, and how one entity's are erased."""

from pathlib import Path

from alembic import op

from understudy.adapters.migrations.losses import Loss

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# What the way down takes with it.
LOSES = (
    Loss("PredictionLog", "rows of PredictionLog with inputs", "inputs IS NOT NULL"),
    Loss("ServingPolicy", "policies that sample inputs", "input_sample_percent <> 0"),
)

# What it takes from the release before.
NARROWS = (
    "index predictionlog_inputs_of_entity on predictionlog is built while writers wait",
    "index predictionlog_inputs_of_hour on predictionlog is built while writers wait",
    "trigger servingpolicy_guard_inputs on servingpolicy may refuse what was done before",
)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create them."""
    _run_script("0003_input_samples.sql")


def downgrade() -> None:
    """Drop them, with every stored input."""
    _run_script("0003_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
