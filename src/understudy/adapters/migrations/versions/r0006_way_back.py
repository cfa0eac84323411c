"""The way back to an old champion that is kept warm: no shadow and no retirement stands in it."""

from understudy.adapters.migrations.script import run_script

revision = "0006"
down_revision = "0005"

# What it takes from the release before.
NARROWS = ("trigger modelversion_guard_warm on modelversion may refuse what was done before",)


def upgrade() -> None:
    """Make it free."""
    run_script("0006_way_back.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0006_down.sql")
