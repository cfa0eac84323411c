"""Judges: what the judge of a rollout was asked, what it said, and what that cost."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0038"
down_revision = "0037"

# What the way down takes with it.
LOSES = (Loss("JudgeQuestion", "what judges of rollouts were asked and said"),)

# What it takes from the release before: nothing.
NARROWS = ()

# What operators notice of it.
NOTES = ("plans may name a judge, who compares both versions' answers (UNDERSTUDY_JUDGES)",)


def upgrade() -> None:
    """Create the table."""
    run_script("0038_judge.sql")


def downgrade() -> None:
    """Drop it."""
    run_script("0038_down.sql")
