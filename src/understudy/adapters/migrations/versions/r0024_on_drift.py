"""A policy says what a challenger leads to that drifts from the champion on the same hours: an alert, or a rollback."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0024"
down_revision = "0023"

# What the way down takes with it.
LOSES = (Loss("ServingPolicy", "policies that take a challenger back that drifts", "on_drift <> 'alert'"),)

# What operators notice of it.
NOTES = (
    "a challenger that drifts from the champion on the same hours is alerted, once",
    "to have it taken back: understudy model set MODEL --on-drift rollback",
)


def upgrade() -> None:
    """Add the column; what is there only alerts."""
    run_script("0024_on_drift.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0024_down.sql")
