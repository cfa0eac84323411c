"""What one key or role writes keeps no row of another model out, and deletes no month at once."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0017"
down_revision = "0016"

# What the way down takes with it.
LOSES = (
    Loss("OutcomeEvent", "outcomes with the id that their sender gave them", "sent_as IS NOT NULL"),
    Loss("LogArchive", "archived months with the time at which their table goes", "drop_after IS NOT NULL"),
    Loss("Installation", "words of the owner on how long archived months stay", "archive_grace <> '3 days'"),
)
# The release before writes nothing that these refuse. The index is empty, and reads the table once.
NARROWS = (
    "index outcomeevent_sent_as on outcomeevent is built while writers wait",
    "trigger alertoutbox_size on alertoutbox may refuse what was done before",
    "trigger experiment_size on experiment may refuse what was done before",
    "trigger experiment_words on experiment may refuse what was done before",
    "trigger logarchive_size on logarchive may refuse what was done before",
    "trigger logarchivefile_size on logarchivefile may refuse what was done before",
    "trigger modelversion_size on modelversion may refuse what was done before",
    "trigger monitorlease_size on monitorlease may refuse what was done before",
    "trigger outcomeevent_of_model on outcomeevent may refuse what was done before",
    "trigger predictiondeadletter_size on predictiondeadletter may refuse what was done before",
    "trigger predictionwindow_size on predictionwindow may refuse what was done before",
    "trigger proxyinstance_size on proxyinstance may refuse what was done before",
    "trigger rollout_size on rollout may refuse what was done before",
    "trigger rolloutevent_size on rolloutevent may refuse what was done before",
    "trigger servingpolicy_size on servingpolicy may refuse what was done before",
    "trigger servingpolicy_words on servingpolicy may refuse what was done before",
    "trigger spooloffset_size on spooloffset may refuse what was done before",
)

# What operators notice of it.
NOTES = (
    "under a login that does not own the tables, understudy db archive leaves a month's table for three days",
    "for another time: UPDATE Installation SET archive_grace = '1 day'",
)


def upgrade() -> None:
    """Store an event whose id another model's has."""
    run_script("0017_reach_of_roles.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0017_down.sql")
