"""Which file a policy was last applied from, and what it said, so that a change beside the file is named."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0032"
down_revision = "0031"

# What the way down takes with it.
LOSES = (Loss("PolicyFile", "which file each policy was applied from"),)

# What it takes from the release before: nothing, but a policy that is deleted takes the row of its file along.
NARROWS = ("trigger servingpolicy_forget_file on servingpolicy may refuse what was done before",)

# What operators notice of it.
NOTES = ("understudy apply keeps which file a policy came from; model show and doctor name what differs from it",)


def upgrade() -> None:
    """Create the table."""
    run_script("0032_policy_files.sql")


def downgrade() -> None:
    """Drop it."""
    run_script("0032_down.sql")
