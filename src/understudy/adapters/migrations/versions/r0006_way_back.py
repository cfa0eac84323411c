"""The way back to an old champion that is kept warm: no shadow and no retirement stands in it."""

from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# What it takes from the release before.
NARROWS = ("trigger modelversion_guard_warm on modelversion may refuse what was done before",)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Make it free."""
    _run_script("0006_way_back.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0006_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
