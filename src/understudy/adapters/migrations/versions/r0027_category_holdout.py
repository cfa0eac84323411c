"""A policy holds out a share of the entities whose category routes to the challenger: the champion answers them."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0027"
down_revision = "0026"

# What the way down takes with it.
LOSES = (Loss("ServingPolicy", "policies that hold out entities of a category", "category_holdout_percent <> 0"),)

# What operators notice of it.
NOTES = ("a category that routes to the challenger is compared once: understudy model set MODEL --category-holdout 10",)


def upgrade() -> None:
    """Add the column; what is there holds out no entity."""
    run_script("0027_category_holdout.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0027_down.sql")
