"""Every table of the control loop has a bound, and a rollout's row stays readable."""

from pathlib import Path

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

# What it takes from the release before.
NARROWS = (
    "index outcomeevent_received_at on outcomeevent is built while writers wait",
    "index policyaudit_changed_at on policyaudit is built while writers wait",
    "trigger policyaudit_guard on policyaudit fires at other times",
    "trigger policyaudit_guard_age on policyaudit may refuse what was done before",
    "trigger policychange_guard on policychange fires at other times",
    "trigger policychange_guard_age on policychange may refuse what was done before",
    "trigger rollout_guard on rollout may refuse what was done before",
    "trigger rollout_guard_new on rollout may refuse what was done before",
    "trigger rollout_no_truncate on rollout may refuse what was done before",
    "trigger spooloffset_guard on spooloffset fires at other times",
    "trigger spooloffset_guard_age on spooloffset may refuse what was done before",
)

_SQL = Path(__file__).parent.parent / "sql"


def upgrade() -> None:
    """Let age end what it may, and guard the rest."""
    _run_script("0007_bounds.sql")


def downgrade() -> None:
    """Leave it as it was."""
    _run_script("0007_down.sql")


def _run_script(name: str) -> None:
    script = (_SQL / name).read_text(encoding="utf-8")
    adapted = op.get_bind().connection.dbapi_connection
    if adapted is None:
        raise RuntimeError("the migration has lost its connection")
    # Several statements at once go only through the driver's simple protocol; connection and transaction are the same.
    adapted.run_async(lambda driver: driver.execute(script))
