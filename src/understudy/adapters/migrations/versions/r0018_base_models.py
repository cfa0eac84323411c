"""A version says what it was trained from: base model and family are columns, not only keys of its metrics."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0018"
down_revision = "0017"

# What the way down takes with it.
LOSES = (
    Loss("ModelVersion", "versions with the base model that they were trained from", "base_model IS NOT NULL"),
    Loss("ModelVersion", "versions with the family of their base model", "family IS NOT NULL"),
)


def upgrade() -> None:
    """Add the two columns, empty."""
    run_script("0018_base_models.sql")


def downgrade() -> None:
    """Leave it as it was."""
    run_script("0018_down.sql")
