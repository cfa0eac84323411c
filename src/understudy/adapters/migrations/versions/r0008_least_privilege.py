"""A role for each process and person, the addresses that a model server may have, and what a key may use."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0008"
down_revision = "0007"

# What the next way up finds out by itself is not lost (0008_endpoints.sql).
_FOUND_AGAIN = (
    "(inet_client_addr() IS NULL OR inet_client_addr() <<= '127.0.0.0/8' OR inet_client_addr() = '::1'"
    r" OR EXISTS (SELECT FROM ModelEndpoint WHERE target ~* '^(127\.|localhost\:|\[\:\:1\])'))"
)
# What the way down takes with it.
LOSES = (
    Loss(
        "ApiKey",
        "keys with a tenant or a limit",
        "tenant IS NOT NULL OR calls_per_second IS NOT NULL OR bytes_per_second IS NOT NULL",
    ),
    Loss("Installation", "words of the owner on endpoints of this machine", f"loopback_endpoints <> {_FOUND_AGAIN}"),
)

# What it takes from the release before.
NARROWS = (
    "rights understudy_ensure_partitions(integer,timestamp with time zone): PUBLIC EXECUTE is taken",
    "trigger modelendpoint_guard on modelendpoint may refuse what was done before",
)


def upgrade() -> None:
    """Create them; without the right to make roles, leave that to an administrator who has it."""
    for part in ("keys", "endpoints", "roles"):
        run_script(f"0008_{part}.sql")


def downgrade() -> None:
    """Drop them, and take the roles' rights in this database back."""
    run_script("0008_down.sql")
