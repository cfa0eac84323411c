"""A row of the log says how much time its caller gave the call, where that decides what a version is judged by."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0019"
down_revision = "0018"

# What the way down takes with it.
LOSES = (Loss("PredictionLog", "rows of PredictionLog with their callers' deadlines", "deadline_us IS NOT NULL"),)

# What operators notice of it.
NOTES = ("what callers' own deadlines cost is no evidence against a version, for calls of proxies of this release",)


def upgrade() -> None:
    """Add the column, empty."""
    run_script("0019_caller_deadlines.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0019_down.sql")
