"""Every table of the control loop has a bound, and a rollout's row stays readable."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Let age end what it may, and guard the rest."""
    _run_script("0007_bounds.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0007_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
