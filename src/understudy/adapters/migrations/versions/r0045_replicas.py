"""A version may be on some servers of its group, chosen by memory and counted by its calls."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0045"
down_revision = "0044"

# What the way down takes with it: every server of the group gets these versions, where it has room.
LOSES = (
    Loss("VersionLoading", "numbers of servers that versions are to be on", "replicas_min IS NOT NULL"),
    Loss("ModelServer", "agents' words of how much memory their servers have for versions", "room_bytes IS NOT NULL"),
    Loss("LoadedVersion", "what versions were expected to take", "expected_bytes IS NOT NULL"),
)

# What it takes from the release before: nothing; its monitor places such a version on every server of the group, and
# what does not fit there is refused by the server's agent.
NARROWS = ()

# What operators notice of it.
NOTES = ("a version may be on some servers of its group alone (understudy version load --replicas)",)


def upgrade() -> None:
    """Add four columns."""
    run_script("0045_replicas.sql")


def downgrade() -> None:
    """Drop them."""
    run_script("0045_down.sql")
