"""Who ended a declared test."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0039"
down_revision = "0038"

# What the way down takes with it.
LOSES = (Loss("Experiment", "who ended declared tests", "ended_by IS NOT NULL"),)

# What it takes from the release before: nothing. What that ends is signed with its login.
NARROWS = ("trigger experiment_sign_end on experiment may refuse what was done before",)

# What operators notice of it.
NOTES = ("who ends a declared test is kept, and shown in lists and on its page",)


def upgrade() -> None:
    """Add the column, and the trigger that signs it."""
    run_script("0039_ended_by.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0039_down.sql")
