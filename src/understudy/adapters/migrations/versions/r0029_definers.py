"""Functions that triggers run with the owner's rights are no login's to hang on a table of its own."""

from understudy.adapters.migrations.script import run_script

revision = "0029"
down_revision = "0028"

# What the way down takes with it.
LOSES = ()

# What it takes from the release before.
NARROWS = ()


def upgrade() -> None:
    """Take the right to execute them from every login."""
    run_script("0029_definers.sql")


def downgrade() -> None:
    """Give it back."""
    run_script("0029_down.sql")
