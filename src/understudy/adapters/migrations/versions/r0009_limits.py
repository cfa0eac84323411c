"""Versions have a size, keep an endpoint with their role, and stay until their rows are in the log."""

from understudy.adapters.migrations.script import run_script

revision = "0009"
down_revision = "0008"

# What it takes from the release before.
NARROWS = (
    "trigger modelendpoint_guard_last on modelendpoint may refuse what was done before",
    "trigger modelendpoint_lock_version on modelendpoint may refuse what was done before",
    "trigger modelversion_guard_deletion on modelversion may refuse what was done before",
    "trigger modelversion_guard_size on modelversion may refuse what was done before",
)


def upgrade() -> None:
    """Guard versions and their endpoints."""
    run_script("0009_limits.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0009_down.sql")
