"""An entity is erased from the log, outcomes and archive at a person's wish, and late rows do not bring it back."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0021"
down_revision = "0020"

# What the way down takes with it; late rows of erased entities then come in with their names.
LOSES = (
    Loss("EntityErasure", "erasures of entities, by which late rows are known"),
    Loss("EntityErasureFile", "files of the archive that an erasure is replacing"),
    Loss("ErasureSecret", "keys of the digests of erased entities", "FALSE"),
)
# They refuse nothing of an entity that was not erased, and the release before erases none.
NARROWS = (
    "trigger outcomeevent_erase_late on outcomeevent may refuse what was done before",
    "trigger predictiondeadletter_erase_late on predictiondeadletter may refuse what was done before",
    "trigger predictionlog_erase_late on predictionlog may refuse what was done before",
)

# What operators notice of it.
NOTES = ("understudy entity forget erases an entity; grant the role understudy_eraser to the login of who may do it",)


def upgrade() -> None:
    """Create the audit of erasures, the functions that erase, and the triggers that know late rows."""
    run_script("0021_entity_erasure.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0021_down.sql")
