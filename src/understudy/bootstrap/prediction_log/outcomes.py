"""An outcome that a rollout is judged by, or forecast by before it starts, measured in the log of experiments."""

from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.adapters.postgres.experiments.outcome_events import PostgresOutcomeEvents
from understudy.bootstrap.prediction_log.lake_reads import LakePlace, lake_extra, open_lake
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.rollout.outcome_forecast import OutcomeBefore
from understudy.core.statistics.difference import Difference
from understudy.experiments.outcome_before import outcome_before
from understudy.experiments.outcome_watch import OutcomeQuestion, OutcomeWatch
from understudy.ports.experiments.experiment_log import ExperimentLog
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.checks.outcome_check import Measure
from understudy.rollout.start.start import MeasureBefore


def outcome_log(database_url: str, timeout_seconds: float, lake: LakePlace | None) -> ExperimentLog:
    """Return the log that outcomes are joined with.

    Args:
        database_url: Has policies and outcomes, and the calls unless they are in the lake alone.
        timeout_seconds: Longest time of one question.
        lake: Where the calls are, if they are there alone.

    Raises:
        LakeUnavailable: The lake's extra is not installed.
    """
    log = PostgresExperimentLog(database_url, timeout_seconds=timeout_seconds)
    if lake is None:
        return log
    with lake_extra():
        from understudy.adapters.lake.reading.experiment_log import (  # noqa: PLC0415 - needs an extra
            LakeExperimentLog,
        )
    outcomes = PostgresOutcomeEvents(database_url, timeout_seconds=timeout_seconds)
    return LakeExperimentLog(open_lake(lake, database_url, timeout_seconds), log, outcomes)


def measure_outcomes(log: ExperimentLog) -> Measure:
    """Return what measures an outcome that a rollout is judged by, for the monitor and for status views."""
    watch = OutcomeWatch(log)

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


def measure_outcomes_before(log: ExperimentLog) -> MeasureBefore:
    """Return what measures an outcome that a rollout is to be judged by, before it starts."""

    async def measure(model_name: str, champion_id: int, limit: OutcomeLimit, now: float) -> OutcomeBefore | None:
        return await outcome_before(log, model_name, champion_id, limit, now)

    return measure
