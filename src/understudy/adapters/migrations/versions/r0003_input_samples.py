"""Inputs of sampled entities in the log: how many of them, where they lie, and how one entity's are erased."""

from understudy.adapters.migrations.losses import Loss
from understudy.adapters.migrations.script import run_script

revision = "0003"
down_revision = "0002"

# What the way down takes with it.
LOSES = (
    Loss("PredictionLog", "rows of PredictionLog with inputs", "inputs IS NOT NULL"),
    Loss("ServingPolicy", "policies that sample inputs", "input_sample_percent <> 0"),
)

# What it takes from the release before.
NARROWS = (
    "index predictionlog_inputs_of_entity on predictionlog is built while writers wait",
    "index predictionlog_inputs_of_hour on predictionlog is built while writers wait",
    "trigger servingpolicy_guard_inputs on servingpolicy may refuse what was done before",
)


def upgrade() -> None:
    """Create them."""
    run_script("0003_input_samples.sql")


def downgrade() -> None:
    """Drop them, with every stored input."""
    run_script("0003_down.sql")
