"""Changes of versions, endpoints and keys have an audit, as policies have.

Expand first, contract in a later release: the code before this migration and the code after it both run against the
schema that it leaves.
"""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0012"
down_revision = "0011"

# What the way down takes with it.
LOSES = (Loss("RegistryAudit", "changes of versions, endpoints and keys in the audit"),)
# Triggers that only write down what was done: none of them refuses what the release before does.
NARROWS = (
    "trigger apikey_record on apikey may refuse what was done before",
    "trigger apikey_record_truncate on apikey may refuse what was done before",
    "trigger modelendpoint_record on modelendpoint may refuse what was done before",
    "trigger modelversion_record on modelversion may refuse what was done before",
    "trigger modelversion_record_deletion on modelversion may refuse what was done before",
)


def upgrade() -> None:
    """Create the table, what writes it and what guards it."""
    run_script("0012_registry_audit.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0012_down.sql")
