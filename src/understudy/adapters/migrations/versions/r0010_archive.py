"""Old months of the log go to files: what is where, and who may take a month out."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0010"
down_revision = "0009"

# What the way down takes with it.
LOSES = (
    Loss("LogArchive", "months that are archived, or on their way"),
    Loss("LogArchiveFile", "files of archived months"),
    Loss("ArchiveStatus", "times at which the archiver ended"),
)


def upgrade() -> None:
    """Create the tables and functions."""
    run_script("0010_archive.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0010_down.sql")
