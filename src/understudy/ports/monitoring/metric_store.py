"""Port of what the monitor measures and stores of a version: metrics, drift hours, drift alerts."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, Protocol

from understudy.core.alerts.alerts import AlertEvent, AlertKind
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.prediction_log.input_sampling import InputSample
from understudy.core.routing.policy import Role
from understudy.ports.monitoring.lease import Epoch


class ActiveVersion(NamedTuple):
    """A version that answers, or may do so soon: it has a role, or is part of an open rollout."""

    id: int
    model_name: str
    version: str
    role: Role | None
    """``None`` for one that is only kept warm."""
    metrics_digest: str
    """Another one when ``ModelVersion.metrics`` is another one."""
    measured_until: float | None
    """The end of the last minute whose metrics are written, in seconds since the epoch as all times here."""
    summed_until: float | None
    """The end of the last hour of predictions that is summed up for drift."""
    threshold: float | None = None
    """Of its ``output_schema``: the score from which on a prediction is positive."""
    has_classes: bool = False
    """Whether its ``output_schema`` says that it answers with a class."""


class ActiveVersions(NamedTuple):
    """The versions, by model and age, and when Postgres said so by its own clock."""

    now: float
    versions: Sequence[ActiveVersion]


class MetricValue(NamedTuple):
    """A row of ``PredictionMetric``; ``computed_at`` is the end of what was measured."""

    version_id: int
    name: str
    value: float
    computed_at: float


class ServedCall(NamedTuple):
    """A logged call with the inputs that it was served."""

    entity_id: str
    predicted_at: float
    """Seconds since the epoch."""
    inputs: str | bytes
    """A JSON object."""
    defaulted: Sequence[str]
    """Features of the feature store that took their default."""


class DriftFacts(NamedTuple):
    """What a version's drift is judged from: ``ModelVersion.metrics``, and hours by subject, oldest first."""

    metrics: Mapping[str, Any] | None
    hours: Mapping[str, Sequence[SubjectWindow]]


class MetricStore(Protocol):
    """What the monitor measures.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``; writes also ``LeadershipLost``. Every write is one
    transaction, and doing it again changes nothing.
    """

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which all calls share a connection, which is cheaper where there are many."""

    async def active(self, model_name: str | None = None) -> ActiveVersions:
        """Return the active versions of a model, or of all."""

    async def newest_outcomes(self) -> Mapping[str, float]:
        """Return when the newest outcome of each model was received.

        Only models among the newest outcomes of all have one: reading them must not grow with the table.
        """

    async def drift_facts(self, version_id: int, since: float, subjects: Sequence[str] | None = None) -> DriftFacts:
        """Return a version's facts with the subjects' hours that start at ``since`` or later and are not empty."""

    async def input_samples(self, version_id: int, hour_start: float, limit: int) -> Sequence[InputSample]:
        """Return the logged inputs of a version in one hour.

        When there are more than ``limit``, they are those of some of the entities, chosen by their hash and so without
        regard to what they are like.
        """

    async def answered_classes(
        self, version_id: int, hour_start: float, limit: int
    ) -> Sequence[tuple[str, str | None]]:
        """Return entities of a version's own answers in an hour with the class that they got, ``None`` for none.

        Of each minute the last ones, so that they are of the whole hour. Left out is what the cache answered, what a
        caller or a category chose the version for, and what another version answered.
        """

    async def served_calls(self, version_id: int, since: float, until: float, limit: int) -> Sequence[ServedCall]:
        """Return the newest calls of a version in a stretch of time whose inputs were logged, and no cache answered."""

    async def add(self, values: Sequence[MetricValue], *, epoch: Epoch) -> None:
        """Write metrics; a value that was written before is replaced when it has changed."""

    async def add_hours(self, version_id: int, hours: Mapping[str, SubjectWindow], *, epoch: Epoch) -> None:
        """Write an hour of each subject, empty ones too: they say that the hour is over."""

    async def tell_drift(self, values: Sequence[MetricValue], event: AlertEvent, *, epoch: Epoch) -> bool:
        """Write metrics, and the event if it changes what was alerted: a trigger of an open incident does not.

        Returns:
            Whether the event was written.
        """

    async def open_incidents(self, kind: AlertKind, environment: str, topic: str | None = None) -> Collection[str]:
        """Return the models whose last alert was anything but a resolve: the outbox knows it of all."""

    async def open_incidents_of_versions(self, kind: AlertKind, environment: str) -> Collection[tuple[str, str]]:
        """Return the same of incidents that are a version's own: the model and the version of each."""

    async def forget_hours(self, before: float, *, epoch: Epoch) -> int:
        """Delete hours that start before; return how many."""

    async def forget_metrics(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        """Delete metrics that were computed before, the oldest first; return how many."""

    async def forget_inputs(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        """Erase logged inputs of the oldest hour that was over before; return of how many calls, 0 when there is none.

        The calls themselves stay in the log.
        """
