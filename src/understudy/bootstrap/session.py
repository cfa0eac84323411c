"""The composition root of one command or one call: the stores it works with, each opened when it is first used.

An adapter is imported with the property that opens it: a rollback must not wait for SQLAlchemy (0.3 s), nor for scipy.
"""

from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Self

from understudy.bootstrap.prediction_log.lake_reads import LakePlace, lake_place_of, open_lake
from understudy.settings import Settings

if TYPE_CHECKING:
    from understudy.adapters.lake.reading.question import Lake
    from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory
    from understudy.ports.experiments.experiment_log import ExperimentLog
    from understudy.ports.experiments.experiment_store import ExperimentStore
    from understudy.ports.experiments.outcome_store import OutcomeStore
    from understudy.ports.loading.loading_registry import LoadingRegistry
    from understudy.ports.monitoring.change_history import ChangeHistory
    from understudy.ports.monitoring.metric_store import MetricStore
    from understudy.ports.monitoring.notifications import SubscriptionStore
    from understudy.ports.monitoring.window_log import WindowLog
    from understudy.ports.prediction_log.live_log import LiveLog
    from understudy.ports.prediction_log.prediction_history import PredictionHistory
    from understudy.ports.prediction_log.receipts import ReceiptLog
    from understudy.ports.registry.policy import PolicySource
    from understudy.ports.registry.registry import Registry
    from understudy.ports.rollout.rollout_store import RolloutStore
    from understudy.ports.rollout.warm_up import WarmUpRequests
    from understudy.rollout.checks.outcome_check import Measure
    from understudy.rollout.start.start import MeasureBefore

ANSWER_SECONDS = 60.0
"""Longest time that Postgres has for one question to the log: a person waits for the answer."""
QUESTION_SECONDS = 300.0
"""Longest time that Postgres has for SQL of a person's own, as an export of the log has for its first row."""


class Session:
    """The stores of one database; an asynchronous context manager, for one event loop. Leaving it closes them.

    Args:
        database_url: Of the login that the command or call works under.
        timeout_seconds: Longest time of a statement.
        answer_seconds: Longest time of a question to the log, which reads many rows.
        lake: Where reports read the log; ``None``: in Postgres.
    """

    def __init__(
        self,
        database_url: str,
        *,
        timeout_seconds: float,
        answer_seconds: float = ANSWER_SECONDS,
        lake: LakePlace | None = None,
    ) -> None:
        self._url = database_url
        self._seconds = timeout_seconds
        self._answer_seconds = answer_seconds
        self._lake_place = lake
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    @cached_property
    def registry(self) -> "Registry":
        """Models, versions, policies, keys and the audit."""
        from understudy.adapters.postgres.registry.registry import PostgresRegistry

        registry = PostgresRegistry(self._url, timeout_seconds=self._seconds)
        self._stack.push_async_callback(registry.close)
        return registry

    @cached_property
    def loading(self) -> "LoadingRegistry":
        """What agents are to load, and what has become of it."""
        from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry

        return PostgresLoadingRegistry(self._url, timeout_seconds=self._seconds)

    @cached_property
    def policies(self) -> "PolicySource":
        """Policies and versions as proxies read them, without callers' keys."""
        from understudy.adapters.postgres.registry.policy import PostgresPolicySource

        policies = PostgresPolicySource(self._url, timeout_seconds=self._seconds, reads_keys=False)
        self._stack.push_async_callback(policies.close)
        return policies

    @cached_property
    def rollouts(self) -> "RolloutStore":
        """Rollouts and their events."""
        from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore

        return PostgresRolloutStore(self._url, timeout_seconds=self._seconds)

    @cached_property
    def changes(self) -> "ChangeHistory":
        """What changed around a model of late."""
        from understudy.adapters.postgres.monitoring.changes import PostgresChangeHistory

        return PostgresChangeHistory(self._url, timeout_seconds=self._seconds)

    @cached_property
    def subscriptions(self) -> "SubscriptionStore":
        """Who is told of which events."""
        from understudy.adapters.postgres.monitoring.subscriptions import PostgresSubscriptionStore

        return PostgresSubscriptionStore(self._url, timeout_seconds=self._seconds)

    @cached_property
    def warm_ups(self) -> "WarmUpRequests":
        """Where live proxies are asked to call a version."""
        from understudy.adapters.postgres.rollout.warm_ups import PostgresWarmUpRequests

        return PostgresWarmUpRequests(self._url, timeout_seconds=self._seconds)

    @cached_property
    def windows(self) -> "WindowLog":
        """The windows that proxies count calls in."""
        from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog

        return PostgresWindowLog(self._url, timeout_seconds=self._seconds)

    @cached_property
    def metrics(self) -> "MetricStore":
        """Metrics of the monitor, and what drift is judged by."""
        from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore

        return PostgresMetricStore(self._url, timeout_seconds=self._answer_seconds)

    @cached_property
    def experiment_log(self) -> "ExperimentLog":
        """The prediction log as A/B tests and shadow reports read it."""
        from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog

        log = PostgresExperimentLog(self._url, timeout_seconds=self._answer_seconds)
        if self._lake is None:
            return log
        from understudy.adapters.lake.reading.experiment_log import LakeExperimentLog
        from understudy.adapters.postgres.experiments.outcome_events import PostgresOutcomeEvents

        outcomes = PostgresOutcomeEvents(self._url, timeout_seconds=self._answer_seconds)
        return LakeExperimentLog(self._lake, log, outcomes)

    @cached_property
    def live_log(self) -> "LiveLog":
        """Rows of the prediction log that Postgres holds, for a person's own questions."""
        from understudy.adapters.postgres.prediction_log.live_log import PostgresLiveLog

        return PostgresLiveLog(self._url, timeout_seconds=self._seconds, answer_seconds=QUESTION_SECONDS)

    @cached_property
    def receipts(self) -> "ReceiptLog":
        """Single calls of the log, and what decided them."""
        if self._lake is not None:
            from understudy.adapters.lake.reading.receipts import LakeReceiptLog
            from understudy.adapters.postgres.prediction_log.lake_ledger import PostgresLakeLedger

            return LakeReceiptLog(self._lake, PostgresLakeLedger(self._url, timeout_seconds=self._seconds))
        from understudy.adapters.postgres.prediction_log.receipts import PostgresReceiptLog

        return PostgresReceiptLog(self._url, timeout_seconds=self._seconds)

    @cached_property
    def experiments(self) -> "ExperimentStore":
        """Declared A/B tests."""
        from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore

        return PostgresExperimentStore(self._url, timeout_seconds=self._seconds)

    @cached_property
    def outcomes(self) -> "OutcomeStore":
        """Outcome events."""
        from understudy.adapters.postgres.experiments.outcomes import PostgresOutcomeStore

        outcomes = PostgresOutcomeStore(self._url, timeout_seconds=self._seconds)
        self._stack.push_async_callback(outcomes.close)
        return outcomes

    @cached_property
    def measure_outcome(self) -> "Measure":
        """Measures the outcome that a rollout is judged by."""
        from understudy.bootstrap.prediction_log.outcomes import measure_outcomes

        return measure_outcomes(self._outcome_log(self._answer_seconds))

    def outcome_before(self, timeout_seconds: float) -> "MeasureBefore":
        """Return what measures an outcome before a rollout starts."""
        from understudy.bootstrap.prediction_log.outcomes import measure_outcomes_before

        return measure_outcomes_before(self._outcome_log(timeout_seconds))

    def history(self, timeout_seconds: float = ANSWER_SECONDS) -> "PostgresPredictionHistory":
        """Return logged calls, scores and failures; each question has its own bound."""
        from understudy.adapters.postgres.prediction_log.history import PostgresPredictionHistory

        return PostgresPredictionHistory(self._url, timeout_seconds=timeout_seconds)

    @cached_property
    def baseline_history(self) -> "PredictionHistory":
        """What drift baselines are made of: logged scores, and sampled inputs."""
        if self._lake is None:
            return self.history()
        from understudy.adapters.lake.reading.history import LakeHistory

        return LakeHistory(self._lake, self.history())

    def _outcome_log(self, timeout_seconds: float) -> "ExperimentLog":
        from understudy.bootstrap.prediction_log.outcomes import outcome_log

        alone = self._lake_place if self._lake_place is not None and self._lake_place.is_alone else None
        return outcome_log(self._url, timeout_seconds, alone)

    @cached_property
    def _lake(self) -> "Lake | None":
        """What reads the lake, which may only be if its extra is installed; ``None`` where Postgres is read."""
        return None if self._lake_place is None else open_lake(self._lake_place, self._url, self._answer_seconds)


def session_of(settings: Settings) -> Session:
    """Return the session of a command, under the login of ``DATABASE_URL``."""
    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    return Session(url, timeout_seconds=seconds, lake=lake_place_of(settings))
