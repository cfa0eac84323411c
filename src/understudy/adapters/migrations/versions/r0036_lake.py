"""The log as an Iceberg table beside Postgres: files that proxies wrote for it, and the table's catalogue."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0036"
down_revision = "0035"

# What the way down takes with it. The files stay where they are, and so does the table's metadata beside them.
LOSES = (
    Loss("LakeFile", "which files of the lake were committed"),
    Loss("iceberg_tables", "where the lake's table is"),
    Loss("iceberg_namespace_properties", "the namespace of the lake's table"),
)

# What it takes from the release before: nothing.
NARROWS = ()

# What operators notice of it.
NOTES = ("UNDERSTUDY_LOG=postgres+lake writes the log into an Apache Iceberg table as well",)


def upgrade() -> None:
    """Create the tables."""
    run_script("0036_lake.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0036_down.sql")
