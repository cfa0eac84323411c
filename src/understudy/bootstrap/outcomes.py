"""An outcome that a rollout is judged by, measured in the log of experiments."""

from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.statistics.difference import Difference
from understudy.experiments.outcome_watch import OutcomeQuestion, OutcomeWatch
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.checks.outcome_check import Measure


def measure_outcomes(database_url: str, timeout_seconds: float) -> Measure:
    """Return what measures an outcome that a rollout is judged by, for the monitor and for status views."""
    watch = OutcomeWatch(PostgresExperimentLog(database_url, timeout_seconds=timeout_seconds))

    async def measure(view: RolloutView, limit: OutcomeLimit) -> Difference | None:
        state = view.record.state
        question = OutcomeQuestion(
            model_name=state.model_name,
            metric=limit.name,
            champion_id=view.record.champion_id,
            challenger_id=view.record.challenger_id,
            generations=frozenset(view.weights_percent),
            since=state.step_starts[0],
            now=view.read_at,
            within_seconds=limit.within_seconds,
        )
        return await watch.difference(question)

    return measure
