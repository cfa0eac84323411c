"""A row of the log says which slices its call belongs to: versions are compared by each of them."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0026"
down_revision = "0025"

# What the way down takes with it.
LOSES = (Loss("PredictionLog", "rows of PredictionLog with their categories and other slices", "slices IS NOT NULL"),)

# What operators notice of it.
NOTES = (
    "a challenger that does worse for a category of the calls waits for a person, for calls of proxies of this release",
)


def upgrade() -> None:
    """Add the column, empty."""
    run_script("0026_slices.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0026_down.sql")
