"""What one role writes harms no other process: keys, offsets, reports, names and reasons have bounds and owners."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0016"
down_revision = "0015"

# What the way down takes with it; after the next way up an offset belongs to the login that moves it next.
LOSES = (Loss("SpoolOffset", "offsets with the login that may move them", "owner IS NOT NULL"),)
# The release before writes nothing that these refuse, unless the login of a proxy is replaced by another one.
NARROWS = (
    "trigger logarchivefile_key_below_root on logarchivefile may refuse what was done before",
    "trigger modelversion_guard_new on modelversion may refuse what was done before",
    "trigger policyaudit_bound on policyaudit may refuse what was done before",
    "trigger predictionlog_guard_erasure on predictionlog may refuse what was done before",
    "trigger predictionwindow_readable on predictionwindow may refuse what was done before",
    "trigger proxyinstance_readable on proxyinstance may refuse what was done before",
    "trigger registryaudit_bound on registryaudit may refuse what was done before",
    "trigger rollout_sign on rollout may refuse what was done before",
    "trigger rolloutevent_guard_erasure on rolloutevent may refuse what was done before",
    "trigger rolloutevent_sign on rolloutevent may refuse what was done before",
    "trigger spooloffset_guard on spooloffset fires at other times",
)

# What operators notice of it.
NOTES = (
    "the offset of a spool belongs to the database login of the proxy that moves it next",
    "where a proxy gets another login, its rows wait on its disk until: GRANT old TO new, or DROP ROLE old",
)


def upgrade() -> None:
    """Add the bounds and the guards; rows that exist stay as they are."""
    run_script("0016_role_bounds.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0016_down.sql")
