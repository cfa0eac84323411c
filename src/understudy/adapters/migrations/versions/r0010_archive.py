"""Old months of the log go to files: what is where, and who may take a month out."""

from pathlib import Path

from alembic import op

from understudy.adapters.migrations.losses import Loss

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# What the way down takes with it.
LOSES = (
    Loss("LogArchive", "months that are archived, or on their way"),
    Loss("LogArchiveFile", "files of archived months"),
    Loss("ArchiveStatus", "times at which the archiver ended"),
)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Create the tables and functions."""
    _run_script("0010_archive.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0010_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
