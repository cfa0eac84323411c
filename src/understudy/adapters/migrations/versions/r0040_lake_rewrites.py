"""Files of the lake that take the place of others: merged ones, those without an entity, and none for old rows."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0040"
down_revision = "0039"

# What the way down takes with it. The files that were replaced stay in the store; no program knows them any more.
LOSES = (
    Loss("LakeRewrite", "which replaced files of the lake are to be deleted"),
    Loss("EntityErasure", "how many rows of the lake erasures had", "lake_rows > 0 OR lake_files > 0"),
)

# What it takes from the release before: nothing.
NARROWS = ()

# What operators notice of it.
NOTES = (
    "the monitor merges small files of the lake; understudy entity forget reaches it, with credentials of the store",
)


def upgrade() -> None:
    """Create the table and the functions."""
    run_script("0040_lake_rewrites.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0040_down.sql")
