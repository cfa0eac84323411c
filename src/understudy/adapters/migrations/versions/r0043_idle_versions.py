"""A version that nothing wants stays loaded for a while, and what a loaded version takes of memory is kept."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0043"
down_revision = "0042"

# What the way down takes with it: idle versions are wanted as before, until the monitor of the release before looks.
LOSES = (
    Loss("Placement", "marks of versions that are idle", "idle_since IS NOT NULL"),
    Loss("LoadedVersion", "figures of versions' memory", "memory_bytes IS NOT NULL"),
)

# What it takes from the release before: nothing; an agent of that takes an idle version for a wanted one, and keeps it.
NARROWS = ()

# What operators notice of it.
NOTES = (
    "a version that nothing wants stays loaded for half an hour (UNDERSTUDY_IDLE_UNLOAD_SECONDS)",
    "agents may be told their server's memory (UNDERSTUDY_SERVER_MEMORY_BYTES)",
)


def upgrade() -> None:
    """Add two columns."""
    run_script("0043_idle_versions.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0043_down.sql")
