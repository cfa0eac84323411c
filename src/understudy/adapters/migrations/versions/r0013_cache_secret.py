"""The secret under which proxies authenticate what they keep in the shared prediction cache."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0013"
down_revision = "0012"

# What the way down takes with it; the next way up makes another, and values that are cached under this one are misses.
LOSES = (Loss("CacheSecret", "secrets of the shared cache", "FALSE"),)


def upgrade() -> None:
    """Make the secret, and let proxies read it."""
    run_script("0013_cache_secret.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0013_down.sql")
