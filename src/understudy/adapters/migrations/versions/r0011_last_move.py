"""A rollback undoes the newest move of traffic, also where that was a champion set by hand."""

from understudy.adapters.migrations.script import run_script

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Let it look for the champion before."""
    run_script("0011_last_move.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0011_down.sql")
