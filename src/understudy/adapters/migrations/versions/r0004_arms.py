"""Further arms: buckets of their own for versions beside champion and challenger."""

from pathlib import Path

from alembic import op

from understudy.adapters.migrations.losses import Loss

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# What the way down takes with it.
LOSES = (Loss("ServingPolicy", "policies with further arms", "arms <> '[]'"),)

# What it takes from the release before.
NARROWS = ("trigger servingpolicy_arms_guard on servingpolicy may refuse what was done before",)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Add the column, and teach the triggers and views of it."""
    _run_script("0004_arms.sql")


def downgrade() -> None:
    """Give the buckets of all further arms back to the champions, and forget that there were any."""
    _run_script("0004_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
