"""What a login that erases entities says is held against what the database knows, and replaced files are remembered."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0023"
down_revision = "0022"

# What the way down takes with it.
LOSES = (
    Loss("EntityErasureSwap", "files of the archive that erasures replaced, by which the owner puts one back"),
    Loss("EntityErasure", "erasures that another login went on with", "resumed_by <> '{}'"),
)

# Triggers call these as the owner of the tables, under either release; no release calls them by themselves.
NARROWS = (
    "rights understudy_end_guard(text,text): PUBLIC EXECUTE is taken",
    "rights understudy_finish_guard(bigint,text): PUBLIC EXECUTE is taken",
    "rights understudy_open_guard(servingpolicy,bigint): PUBLIC EXECUTE is taken",
    "rights understudy_tell_guard(bigint,text,text): PUBLIC EXECUTE is taken",
    "rights understudy_watch_arms(servingpolicy): PUBLIC EXECUTE is taken",
)

# What operators notice of it.
NOTES = ("a file of the archive that an erasure replaced can be put back by the owner of the tables",)


def upgrade() -> None:
    """Bind the functions that erase to what the database knows."""
    run_script("0023_erasers_bounds.sql")


def downgrade() -> None:
    """Believe them again."""
    run_script("0023_down.sql")
