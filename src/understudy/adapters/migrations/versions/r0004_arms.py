"""Further arms: buckets of their own for versions beside champion and challenger."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0004"
down_revision = "0003"

# What the way down takes with it.
LOSES = (Loss("ServingPolicy", "policies with further arms", "arms <> '[]'"),)

# What it takes from the release before.
NARROWS = ("trigger servingpolicy_arms_guard on servingpolicy may refuse what was done before",)


def upgrade() -> None:
    """Add the column, and teach the triggers and views of it."""
    run_script("0004_arms.sql")


def downgrade() -> None:
    """Give the buckets of all further arms back to the champions, and forget that there were any."""
    run_script("0004_down.sql")
