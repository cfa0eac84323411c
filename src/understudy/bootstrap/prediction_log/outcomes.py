"""An outcome that a rollout is judged by, or forecast by before it starts, measured in the log of experiments."""

from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.rollout.outcome_forecast import OutcomeBefore
from understudy.core.statistics.difference import Difference
from understudy.experiments.outcome_before import outcome_before
from understudy.experiments.outcome_watch import OutcomeQuestion, OutcomeWatch
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.checks.outcome_check import Measure
from understudy.rollout.start.start import MeasureBefore


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


def measure_outcomes_before(database_url: str, timeout_seconds: float) -> MeasureBefore:
    """Return what measures an outcome that a rollout is to be judged by, before it starts."""
    log = PostgresExperimentLog(database_url, timeout_seconds=timeout_seconds)

    async def measure(model_name: str, champion_id: int, limit: OutcomeLimit, now: float) -> OutcomeBefore | None:
        return await outcome_before(log, model_name, champion_id, limit, now)

    return measure
