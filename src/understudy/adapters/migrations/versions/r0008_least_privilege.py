"""A role for each process and person, the addresses that a model server may have, and what a key may use."""

from pathlib import Path

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create them; without the right to make roles, leave that to somebody who has it."""
    for part in ("keys", "endpoints", "roles"):
        _run_script(f"0008_{part}.sql")


def downgrade() -> None:
    """Drop them, and take the roles' rights in this database back."""
    _run_script("0008_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
