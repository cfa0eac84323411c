"""Versions have a size, keep an endpoint with their role, and stay until their rows are in the log."""

from pathlib import Path

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# What it takes from the release before.
NARROWS = (
    "trigger modelendpoint_guard_last on modelendpoint may refuse what was done before",
    "trigger modelendpoint_lock_version on modelendpoint may refuse what was done before",
    "trigger modelversion_guard_deletion on modelversion may refuse what was done before",
    "trigger modelversion_guard_size on modelversion may refuse what was done before",
)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Guard versions and their endpoints."""
    _run_script("0009_limits.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0009_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
