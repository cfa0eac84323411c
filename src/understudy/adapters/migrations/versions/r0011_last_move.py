"""A rollback undoes the newest move of traffic, also where that was a champion set by hand."""

from pathlib import Path

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Let it look for the champion before."""
    _run_script("0011_last_move.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0011_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
