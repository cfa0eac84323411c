"""Further arms are watched as a challenger is: each version by a row of the guard that is its own."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0022"
down_revision = "0021"

# What the way down takes with it.
LOSES = (
    Loss("Rollout", "guards of splits with further arms, with what they found", "guard_id IS NOT NULL"),
    Loss("ServingPolicy", "policies whose further arms are watched", "guard_id IS NOT NULL"),
)

# What it takes from the release before.
NARROWS = (
    "index rollout_one_open_per_model on rollout is another",
    "trigger rollout_guard on rollout fires at other times",
)

# What operators notice of it.
NOTES = (
    "further arms are watched from their next change on, or from the monitor's next look for splits without a guard",
)


def upgrade() -> None:
    """Open a guard with each split that has further arms, and end it with the split."""
    run_script("0022_arms_guards.sql")


def downgrade() -> None:
    """Leave further arms to themselves."""
    run_script("0022_down.sql")
