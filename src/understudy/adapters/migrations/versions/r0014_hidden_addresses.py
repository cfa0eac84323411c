"""Addresses that lead to a forbidden one by a router's translation are refused as that one is."""

from understudy.adapters.migrations.script import run_script

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Look into IPv6 addresses that hide an IPv4 address."""
    run_script("0014_hidden_addresses.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0014_down.sql")
