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

# They refuse nothing of what the release before does.
NARROWS = ()

# What operators notice of it.
NOTES = ("a file of the archive that an erasure replaced can be put back by the owner of the tables",)


def upgrade() -> None:
    """Bind the functions that erase to what the database knows."""
    run_script("0023_erasers_bounds.sql")


def downgrade() -> None:
    """Believe them again."""
    run_script("0023_down.sql")
