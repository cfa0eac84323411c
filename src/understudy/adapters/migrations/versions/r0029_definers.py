"""Functions that triggers run with the owner's rights are no login's to hang on a table of its own."""

from understudy.adapters.migrations.script import run_script

revision = "0029"
down_revision = "0028"

# What the way down takes with it.
LOSES = ()

# What it takes from the release before, which makes no trigger of them either.
NARROWS = (
    "rights understudy_erase_late_rows(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_arms(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_deletion(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_endpoint(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_last_endpoint(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_new_rollout(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_policy(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_rollout(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_version(): PUBLIC EXECUTE is taken",
    "rights understudy_guard_warm(): PUBLIC EXECUTE is taken",
    "rights understudy_leave_guard(): PUBLIC EXECUTE is taken",
    "rights understudy_lock_version(): PUBLIC EXECUTE is taken",
    "rights understudy_record_endpoint(): PUBLIC EXECUTE is taken",
    "rights understudy_record_key(): PUBLIC EXECUTE is taken",
    "rights understudy_record_policy(): PUBLIC EXECUTE is taken",
    "rights understudy_record_version(): PUBLIC EXECUTE is taken",
    "rights understudy_refuse_late_letter(): PUBLIC EXECUTE is taken",
    "rights understudy_refuse_late_outcome(): PUBLIC EXECUTE is taken",
    "rights understudy_scope_outcome(): PUBLIC EXECUTE is taken",
    "rights understudy_take_over_guard(): PUBLIC EXECUTE is taken",
    "rights understudy_tell_warm_up(): PUBLIC EXECUTE is taken",
    "rights understudy_touch_endpoint(): PUBLIC EXECUTE is taken",
    "rights understudy_touch_keys(): PUBLIC EXECUTE is taken",
    "rights understudy_touch_rollout(): PUBLIC EXECUTE is taken",
    "rights understudy_touch_version(): PUBLIC EXECUTE is taken",
    "rights understudy_watch_split(): PUBLIC EXECUTE is taken",
)


def upgrade() -> None:
    """Take the right to execute them from every login."""
    run_script("0029_definers.sql")


def downgrade() -> None:
    """Give it back."""
    run_script("0029_down.sql")
