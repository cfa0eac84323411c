"""Model servers over HTTP: four more protocols that a version may name."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0034"
down_revision = "0033"

# What the way down takes with it: nothing. Versions of the protocols that go stay, and no release below calls them.
LOSES: tuple[Loss, ...] = ()

# What it takes from the release before: nothing, though the list of protocols, which grows, is a constraint made anew.
NARROWS = ("constraint modelversion_protocol_check on modelversion is another",)

# What operators notice of it.
NOTES = ("versions may have model servers over HTTP; register one once all proxies and monitors are of this release",)


def upgrade() -> None:
    """Let a version name the protocols."""
    run_script("0034_http_backends.sql")


def downgrade() -> None:
    """Let no new version name them."""
    run_script("0034_down.sql")
