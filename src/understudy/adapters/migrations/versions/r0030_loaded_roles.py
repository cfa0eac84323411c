"""A version that agents load gets a role once a server has it, and agents add endpoints only where it is placed."""

from understudy.adapters.migrations.script import run_script

revision = "0030"
down_revision = "0029"

# What the way down takes with it: nothing, it has functions and a trigger alone.
LOSES = ()

# What it takes from the release before.
NARROWS = ("trigger servingpolicy_guard_loaded on servingpolicy may refuse what was done before",)

# What operators notice of it.
NOTES = (
    "a version that agents are to load, and no server has yet, gets no role: understudy version load … --wait first",
    "the function understudy_add_agent_endpoint refuses a version that the monitor has not placed on the server",
)


def upgrade() -> None:
    """Create the trigger, and have the functions of agents ask for a placement."""
    run_script("0030_loaded_roles.sql")


def downgrade() -> None:
    """Leave them as they were."""
    run_script("0030_down.sql")
