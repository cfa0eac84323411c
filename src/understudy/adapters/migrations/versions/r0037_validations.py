"""Verdicts of validations, and versions that get calls only with one that holds."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0037"
down_revision = "0036"

# What the way down takes with it. Versions that require a validation get their roles without one.
LOSES = (
    Loss("VersionValidation", "verdicts of validations"),
    Loss("VersionLoading", "versions that require a validation", "requires_validation"),
)

# What it takes from the release before: nothing; the trigger asks more only of versions that say so.
NARROWS = ()

# What operators notice of it.
NOTES = ("agents keep what became of each validation; understudy version load --require-validation asks for one",)


def upgrade() -> None:
    """Create the table, and have the trigger of roles ask for a verdict."""
    run_script("0037_validations.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0037_down.sql")
