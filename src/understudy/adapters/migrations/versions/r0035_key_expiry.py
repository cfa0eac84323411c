"""Keys that expire: until when a caller's key is good."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0035"
down_revision = "0034"

# What the way down takes with it: the release before takes such a key for one that is good until it is revoked.
LOSES = (Loss("ApiKey", "keys that expire, and would not any more", "expires_at IS NOT NULL AND revoked_at IS NULL"),)

# What it takes from the release before: nothing. Its proxies go on taking a key after its end.
NARROWS = ()

# What operators notice of it.
NOTES = ("keys may expire (understudy key create --expires 30d); proxies of the release before do not see that",)


def upgrade() -> None:
    """Add the column, and let those read it who read keys."""
    run_script("0035_key_expiry.sql")


def downgrade() -> None:
    """Revoke keys that have expired, and drop the column."""
    run_script("0035_down.sql")
