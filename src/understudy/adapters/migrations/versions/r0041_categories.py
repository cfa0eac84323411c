"""Categories give no calls to a version whose validation does not hold."""

from understudy.adapters.migrations.script import run_script

revision = "0041"
down_revision = "0040"

# What it takes from the release before: nothing where no version requires a validation.
NARROWS = ("trigger servingpolicy_guard_validated_categories on servingpolicy may refuse what was done before",)

# What operators notice of it.
NOTES = ("a version whose required validation does not hold gets no more calls by a category",)


def upgrade() -> None:
    """Add the trigger."""
    run_script("0041_categories.sql")


def downgrade() -> None:
    """Drop it."""
    run_script("0041_down.sql")
