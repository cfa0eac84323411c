"""What one key or role writes keeps no row of another model out, and deletes no month at once."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0017"
down_revision = "0016"

# What the way down takes with it.
LOSES = (Loss("OutcomeEvent", "outcomes with the id that their sender gave them", "sent_as IS NOT NULL"),)
# The release before writes nothing that these refuse. The index is empty, and reads the table once.
NARROWS = (
    "index outcomeevent_sent_as on outcomeevent is built while writers wait",
    "trigger outcomeevent_of_model on outcomeevent may refuse what was done before",
)


def upgrade() -> None:
    """Store an event whose id another model's has."""
    run_script("0017_reach_of_roles.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0017_down.sql")
