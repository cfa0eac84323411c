"""Metrics by age, so that old ones can be deleted."""

from pathlib import Path

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

# What it takes from the release before.
NARROWS = ("index predictionmetric_computed_at on predictionmetric is built while writers wait",)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create the index."""
    _run_script("0005_metric_age.sql")


def downgrade() -> None:
    """Drop it."""
    _run_script("0005_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
