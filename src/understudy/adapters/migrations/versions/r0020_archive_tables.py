"""Functions that act as the owner name the schema of each table whose name they put together."""

from understudy.adapters.migrations.script import run_script

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Replace the functions; whom they are granted to stays."""
    run_script("0020_archive_tables.sql")


def downgrade() -> None:
    """Leave them as they were."""
    run_script("0020_down.sql")
