"""A split without a rollout is a guarded split: the monitor judges it, and takes it back as the policy says."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0015"
down_revision = "0014"

# What the way down takes with it.
LOSES = (
    Loss("Rollout", "guards with what they found", "kind = 'guard'"),
    Loss("ServingPolicy", "policies whose guard only alerts, or is off", "guard <> 'rollback'"),
)

# What it takes from the release before.
NARROWS = (
    "trigger rollout_guard on rollout fires at other times",
    "trigger rollout_take_over on rollout may refuse what was done before",
    "trigger servingpolicy_arms_end_watch on servingpolicy may refuse what was done before",
    "trigger servingpolicy_watch_end on servingpolicy may refuse what was done before",
    "trigger servingpolicy_watch_split on servingpolicy may refuse what was done before",
)

# What operators notice of it.
NOTES = (
    "splits and champions set by hand are watched from now on",
    "policies that are there have guard = 'alert', so the monitor moves nothing that it did not move before",
    "to have it take a bad version back: understudy model set MODEL --guard rollback",
)


def upgrade() -> None:
    """Open a guard with each split, and end it with the split."""
    run_script("0015_guards.sql")


def downgrade() -> None:
    """Leave splits to themselves."""
    run_script("0015_down.sql")
