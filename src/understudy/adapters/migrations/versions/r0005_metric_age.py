"""Metrics by age, so that old ones can be deleted."""

from understudy.adapters.migrations.script import run_script

revision = "0005"
down_revision = "0004"

# What it takes from the release before.
NARROWS = ("index predictionmetric_computed_at on predictionmetric is built while writers wait",)


def upgrade() -> None:
    """Create the index."""
    run_script("0005_metric_age.sql")


def downgrade() -> None:
    """Drop it."""
    run_script("0005_down.sql")
