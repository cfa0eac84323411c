"""One Protocol per outside thing: reading this page tells what Understudy depends on.

Each has a real adapter; those that the request and its background work meet have an in-memory twin as well
(``adapters/memory_*.py``), and both pass the port's contract suite.
Errors that a port may raise are named on its methods; an adapter lets no vendor's error through.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, NamedTuple, Protocol

from understudy.core.alerts import AlertEvent, Delivery
from understudy.core.arms import BucketRange, Split
from understudy.core.baseline import Baselines
from understudy.core.drift_windows import SubjectWindow
from understudy.core.outcomes import Outcome
from understudy.core.plan import RolloutPlan
from understudy.core.policy import ModelVersion, PolicyDocument, Role
from understudy.core.prediction import COLUMNS, PredictionRow
from understudy.core.presence import NONE_SILENT, SilentProxies
from understudy.core.rollout_actions import PolicySeen
from understudy.core.rollout_state import RolloutState, Transition
from understudy.core.sampling import InputSample
from understudy.core.tensors import Block, Row, Tensor
from understudy.core.verdict import Verdict
from understudy.core.windows import Window


class ModelBackend(Protocol):
    """The model servers of one version."""

    @property
    def rows_per_call(self) -> int | None:
        """Most rows that one call of :meth:`infer` takes; ``None``: as many as wanted."""
        ...

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        """Return the tensor that the version's ``output_schema`` names, for all ``rows`` in one call.

        Several rows only when the version's ``input_schema`` declares a batch dimension, and :attr:`rows_per_call` at
        most.

        Raises:
            BackendUnavailable: No replica answers.
            DeadlineExceeded: ``timeout_seconds`` passed (stage ``upstream``).
            BadAnswer: The server refused the call or its answer cannot be read.
        """
        ...

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        """Return the same tensor for inputs whose shapes are given whole; one row a call at most is a ``BadAnswer``.

        Raises:
            BackendUnavailable, DeadlineExceeded, BadAnswer: As :meth:`infer`.
        """
        ...

    async def ready(self, timeout_seconds: float) -> bool:
        """Whether at least one replica says that it serves the version. Never raises."""
        ...

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        ...


ConnectBackend = Callable[[ModelVersion], ModelBackend]
"""Makes a version's backend; opens no connection until the first call, and must run after any fork."""


class PredictionCache(Protocol):
    """Answers by ``infer:{version_id}:{sha256}``. Never raises: a cache that is down only misses."""

    async def get(self, key: str) -> bytes | None:
        """Return the stored value, or ``None``; within the adapter's own short time-out."""
        ...

    async def set(self, key: str, value: bytes, ttl_seconds: int) -> None:
        """Store a value, or let it go."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class LocalCache(PredictionCache, Protocol):
    """A cache in this process, which can be asked without a wait."""

    def peek(self, key: str) -> bytes | None:
        """Return the stored value, or ``None``."""
        ...


class FeatureStore(Protocol):
    """Online features by entity."""

    async def fetch(
        self, model_name: str, entity_id: str, names: Sequence[str], timeout_seconds: float
    ) -> Mapping[str, Any]:
        """Return the stored values (JSON types) of those ``names`` that the entity has; an unknown entity has none.

        Raises:
            FeaturesUnavailable: The store is down or did not answer within ``timeout_seconds``.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class PolicyChange(NamedTuple):
    """A hint that a model's rows changed; ``model_name`` is ``None`` when everything should be read again."""

    model_name: str | None


class PolicySource(Protocol):
    """Where policies come from. Every call may also raise ``MigrationNeeded`` where the tables are not there."""

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        """Return the rows of these models, or of all with ``None``. A named model without policy has ``policy: None``.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def changed_since_last_poll(self) -> Sequence[str]:
        """Return the models whose rows changed since the last call (at first: since :meth:`load`); may repeat some.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        """Call ``on_change`` for each committed change until cancelled or the connection is found dead.

        Calls it once with ``model_name=None`` when the subscription stands, so that nothing between the last load and
        the subscription is missed.

        Raises:
            RegistryUnavailable: The connection cannot be opened or a heartbeat failed.
        """
        ...

    async def report(self, instance: str, generations: Mapping[str, int], in_flight: Mapping[int, int]) -> None:
        """Record which generation of each model this proxy instance acts on, and its calls in flight by version id.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def sign_off(self, instance: str) -> None:
        """Forget what this proxy instance reported: it sends no traffic any more. One that never reported is no error.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class NewVersion(NamedTuple):
    """A version to be registered; the defaults are those of ``ModelVersion``."""

    model_name: str
    version: str
    artifact_path: str
    framework: str
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any] = {}
    metrics: Mapping[str, Any] | None = None
    protocol: str = "oip"
    artifact_digest: str | None = None
    backend: Mapping[str, Any] = {}
    deterministic: bool = True
    cache_ttl_seconds: int = 300
    timeout_ms: int = 500
    endpoints: tuple[str, ...] = ()
    """Targets ``host:port`` of its model servers."""


class VersionRecord(NamedTuple):
    """A registered version."""

    id: int
    model_name: str
    version: str
    status: str
    artifact_path: str
    artifact_digest: str | None
    framework: str
    protocol: str
    endpoints: tuple[str, ...]
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]
    metrics: Mapping[str, Any] | None
    backend: Mapping[str, Any]
    deterministic: bool
    cache_ttl_seconds: int
    timeout_ms: int
    created_at: datetime
    deployed_at: datetime | None


class VersionChange(NamedTuple):
    """A version as it was and as it is."""

    before: VersionRecord
    after: VersionRecord


class PolicyRecord(NamedTuple):
    """A serving policy with its versions by their text."""

    model_name: str
    champion: str
    challenger: str | None
    challenger_weight: int
    shadow: str | None
    shadow_percent: int
    fallback: bool
    salt: str | None
    category_roles: Mapping[str, str]
    rollout_id: int | None
    previous_champion: str | None
    generation: int
    updated_at: datetime
    updated_by: str
    proxies: int
    """Live ones: see ``core.presence``."""
    proxies_on_generation: int
    """Those of them that act on this generation."""
    input_sample_percent: int = 0
    """Of the entities, whose inputs are logged."""
    arms: tuple[BucketRange, ...] = ()
    """The buckets of further versions, in their order."""

    @property
    def split(self) -> Split:
        """Who has which buckets."""
        return Split(self.champion, self.challenger, self.challenger_weight, self.arms)


class ModelRecord(NamedTuple):
    """A model: its policy, when it has one, and how many versions are registered."""

    model_name: str
    policy: PolicyRecord | None
    version_count: int


class AuditEntry(NamedTuple):
    """One change of a policy, as the database's trigger wrote it down; ``before`` and ``after`` are whole rows."""

    id: int
    model_name: str
    generation: int
    changed_at: datetime
    actor: str
    via: str
    reason: str | None
    action: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class KeyRecord(NamedTuple):
    """A caller's key, without its secret, which nobody keeps."""

    id: str
    scopes: tuple[str, ...]
    note: str | None
    created_at: datetime
    created_by: str
    revoked_at: datetime | None


class Origin(NamedTuple):
    """Whose change it is. The database believes ``actor`` only from a login that may speak for others."""

    actor: str
    via: str
    reason: str | None = None


class Registry(Protocol):
    """Versions, policies, keys and the audit, for people and programs that change them; no request waits for it.

    Every method raises ``RegistryUnavailable`` when Postgres does not answer in time, and every write ``PolicyRefused``
    with the database's own words and advice when it refuses. With ``dry_run`` a write is tried and taken back.
    """

    async def add_version(self, new: NewVersion, *, dry_run: bool = False) -> VersionRecord:
        """Register a version with its endpoints.

        Raises:
            AlreadyRegistered: The model has a version of this name.
        """
        ...

    async def list_versions(self, model_name: str | None = None) -> Sequence[VersionRecord]:
        """Return the versions of a model, or of all, oldest first; an unknown model has none."""
        ...

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        """Return one version.

        Raises:
            NotRegistered: There is no such version; the message names those there are.
        """
        ...

    async def add_endpoint(self, model_name: str, version: str, target: str, *, dry_run: bool = False) -> VersionRecord:
        """Give a version one more model server; one that it has already changes nothing.

        Raises:
            NotRegistered: There is no such version.
        """
        ...

    async def remove_endpoint(
        self, model_name: str, version: str, target: str, *, dry_run: bool = False
    ) -> VersionRecord:
        """Take a model server away from a version.

        Raises:
            NotRegistered: There is no such version, or it has no such endpoint.
        """
        ...

    async def set_baselines(
        self,
        model_name: str,
        version: str,
        baselines: Baselines,
        origin: Origin,
        *,
        source: str,
        dry_run: bool = False,
    ) -> VersionChange:
        """Replace a version's baselines of some subjects, and keep everything else of its metrics.

        Args:
            model_name: The model.
            version: The version's text.
            baselines: The new ones.
            origin: Kept beside them.
            source: What they were made from, for people; kept beside them.
            dry_run: Return what the version would be, and change nothing.

        Raises:
            NotRegistered: There is no such version.
        """
        ...

    async def list_models(self) -> Sequence[ModelRecord]:
        """Return every model that has a policy or a version, by name."""
        ...

    async def show_model(self, model_name: str) -> ModelRecord:
        """Return one model.

        Raises:
            NotRegistered: It has neither a policy nor a version.
        """
        ...

    async def set_policy(
        self,
        model_name: str,
        changes: Mapping[str, Any],
        origin: Origin,
        *,
        expected_generation: int | None = None,
        dry_run: bool = False,
    ) -> PolicyRecord:
        """Change a model's policy, or make its first one.

        Args:
            model_name: The model.
            changes: New values by fields of :class:`PolicyRecord`; a role's is the version's text or ``None``, and in
                ``arms`` too versions are named by their text.
            origin: For the audit.
            expected_generation: Change nothing unless the policy is at this generation; 0: unless there is none.
            dry_run: Return what the policy would be, and change nothing.

        Raises:
            NotRegistered: A role names a version that the model does not have.
            GenerationMoved: The policy is at another generation.
        """
        ...

    async def list_audit(self, model_name: str | None = None, limit: int = 50) -> Sequence[AuditEntry]:
        """Return the latest changes of a model's policy, or of all, latest first."""
        ...

    async def add_key(
        self, key_id: str, sha256: str, scopes: Sequence[str], note: str | None, created_by: str
    ) -> KeyRecord:
        """Store a key; ``sha256`` is of its secret, in hex."""
        ...

    async def list_keys(self) -> Sequence[KeyRecord]:
        """Return every key, revoked ones too, oldest first."""
        ...

    async def revoke_key(self, key_id: str) -> KeyRecord:
        """Revoke a key; one that is revoked stays so.

        Raises:
            NotRegistered: There is no such key.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class SnapshotFile(Protocol):
    """The last good policy document on local disk."""

    def read(self) -> PolicyDocument | None:
        """Return the document, or ``None`` when there is none or it cannot be read."""
        ...

    def write(self, document: PolicyDocument) -> None:
        """Replace the document atomically; a failure is counted and logged, never raised."""
        ...


class PredictionSpool(Protocol):
    """Rows on local disk, written before the answer leaves."""

    def append(self, row: PredictionRow) -> bool:
        """Write one row; ``False`` when it was dropped because the spool or the disk is full (counted)."""
        ...

    def append_all(self, rows: Sequence[PredictionRow]) -> None:
        """Write several rows at the cost of one; each that does not fit is dropped (and counted) by itself.

        A row that cannot be encoded is a defect: it is raised, and nothing of the others is written.
        """
        ...


class SpooledBatch(NamedTuple):
    """Rows of one spool segment that follow each other: from ``start`` to ``end``, offsets in bytes of that segment."""

    spool_id: str
    segment: int
    start: int
    end: int
    rows: Sequence[bytes]
    """Encoded rows, one each, as ``core.spool_format`` makes them."""
    columns: Sequence[str] = COLUMNS
    """The columns of ``rows``, as the process named them that wrote the segment."""
    damage: str = ""
    """Why ``rows`` (one: the bytes as found) cannot be read; empty for rows that can."""


class SpoolReader(Protocol):
    """The shipping side of one spool. Its calls touch the disk; they may come from another thread than the writer's."""

    @property
    def spool_id(self) -> str:
        """A UUID, never used for two spools."""
        ...

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        """Return rows that follow this place, or ``None`` when there are none (yet).

        Goes on to the next segment by itself. At least one row is returned when there is one, whatever ``max_bytes``.
        """
        ...

    def forget(self, segment: int, offset: int) -> None:
        """Free what lies before this place: it is in the log, or in the dead-letter table."""
        ...

    @property
    def unshipped_bytes(self) -> int:
        """Bytes on disk that nobody has called :meth:`forget` for."""
        ...


class SpoolShelf(Protocol):
    """The spools that a worker ships: its own, and those whose worker died."""

    @property
    def own(self) -> SpoolReader:
        """The worker's own spool."""
        ...

    def orphans(self) -> Generator[SpoolReader, None, None]:
        """Yield each spool without a worker, locked until the next step; an empty one is removed by then.

        Close the iterator (``contextlib.closing``) when leaving it early.
        """
        ...


class WriteOutcome(Enum):
    """What became of a batch; nothing was written unless ``WRITTEN``."""

    WRITTEN = "written"
    OFFSET_MOVED = "offset_moved"
    """The spool's committed offset is not where the batch starts: somebody else shipped these rows."""
    REJECTED = "rejected"
    """The database refuses the content of at least one row."""


class WriteResult(NamedTuple):
    """An outcome, and for ``REJECTED`` what the database said."""

    outcome: WriteOutcome
    why: str = ""


class PredictionStore(Protocol):
    """``PredictionLog`` in Postgres."""

    async def committed(self, spool_id: str) -> tuple[int, int]:
        """Return ``(segment, offset)`` up to which the spool's rows are in the log; ``(0, 0)`` for a new spool.

        Asking keeps it known for another year.

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        """Insert the rows, replace the windows and move the spool's offset to ``batch.end`` in one transaction.

        Raises:
            RegistryUnavailable: Nothing is known to be written (also when a commit's outcome is unknown): read
                :meth:`committed` again.
            MigrationNeeded: The tables are not there, or not with these columns.
        """
        ...

    async def reject(self, batch: SpooledBatch, why: str) -> WriteOutcome:
        """Put one poison row (a batch of one) into the dead-letter table and move the offset past it.

        Nothing is done but to return ``OFFSET_MOVED`` when the spool's committed offset is not where the batch starts.

        Raises:
            RegistryUnavailable: As :meth:`write`.
            MigrationNeeded: As :meth:`write`.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class LatestWindows(NamedTuple):
    """Windows of a rollout at one moment. A mark is a text that is another one once such a window was written."""

    windows: Sequence[Window]
    """From ``since`` on, oldest first."""
    mark_before: str
    """Of those before ``since``."""
    mark_settled: str
    """Of those before ``settled``."""


class WindowLog(Protocol):
    """What the log shippers added up. Raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def of_rollout(self, rollout_id: int, since: float = 0.0) -> Sequence[Window]:
        """Return the windows of a rollout that start at ``since`` or later, oldest first."""
        ...

    async def latest_of_rollout(self, rollout_id: int, since: float, settled: float) -> LatestWindows:
        """Return the same with the marks of what starts before ``since`` and before ``settled``."""
        ...

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        """Return the windows of these versions that start in ``[since, until)`` (seconds since the epoch)."""
        ...

    async def forget(self, before: float, at_most: int) -> int:
        """Delete windows that start before, and return how many.

        Those of an open rollout stay for as long again as its plan may take, and go a day at a time.
        """
        ...


Epoch = int
"""Number of a leadership: it grows with each, and no two monitors ever have the same one."""


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


class DriftFacts(NamedTuple):
    """What a version's drift is judged from: ``ModelVersion.metrics``, and hours by subject, oldest first."""

    metrics: Mapping[str, Any] | None
    hours: Mapping[str, Sequence[SubjectWindow]]


class MetricStore(Protocol):
    """What the monitor measures.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``; writes also ``LeadershipLost``. Every write is one
    transaction, and doing it again changes nothing.
    """

    async def active(self, model_name: str | None = None) -> ActiveVersions:
        """Return the active versions of a model, or of all."""
        ...

    async def drift_facts(self, version_id: int, since: float, subjects: Sequence[str] | None = None) -> DriftFacts:
        """Return a version's facts with the hours that start at ``since`` or later and are not empty.

        Args:
            version_id: The version.
            since: In seconds since the epoch.
            subjects: Whose hours; those of all subjects by default.
        """
        ...

    async def input_samples(self, version_id: int, hour_start: float, limit: int) -> Sequence[InputSample]:
        """Return the logged inputs of a version in one hour.

        When there are more than ``limit``, they are those of some of the entities, chosen by their hash and so without
        regard to what they are like.
        """
        ...

    async def add(self, values: Sequence[MetricValue], *, epoch: Epoch) -> None:
        """Write metrics; a value that was written before is replaced when it has changed."""
        ...

    async def add_hours(self, version_id: int, hours: Mapping[str, SubjectWindow], *, epoch: Epoch) -> None:
        """Write an hour of each subject, empty ones too: they say that the hour is over."""
        ...

    async def tell_drift(self, values: Sequence[MetricValue], event: AlertEvent, *, epoch: Epoch) -> bool:
        """Write metrics, and the event if it changes what people were told: a trigger of an open incident does not.

        Returns:
            Whether the event was written.
        """
        ...

    async def forget_hours(self, before: float, *, epoch: Epoch) -> int:
        """Delete hours that start before; return how many."""
        ...

    async def forget_metrics(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        """Delete metrics that were computed before, the oldest first; return how many."""
        ...

    async def forget_inputs(self, before: float, at_most: int, *, epoch: Epoch) -> int:
        """Erase logged inputs of the oldest hour that was over before; return of how many calls, 0 when there is none.

        The calls themselves stay in the log.
        """
        ...


class GrowingTable(StrEnum):
    """What the control loop and its callers write to without end, and age lets go of."""

    ALERTS = "AlertOutbox"
    """Never what an open incident is known by, nor what was not delivered of it."""
    OUTCOMES = "OutcomeEvent"
    ROLLOUT_EVENTS = "RolloutEvent"
    """Of finished rollouts; the last verdict stays, without what it rested on."""
    ROLLOUTS = "Rollout"
    """Finished ones; a model's newest stays."""
    AUDIT = "PolicyAudit"
    """What a policy was at the age's beginning stays, and so does all of an open rollout."""
    DEAD_LETTERS = "PredictionDeadLetter"
    """Beside the age a number of rows is a bound."""
    SPOOL_OFFSETS = "SpoolOffset"
    """Of spools that nobody has had on disk for that long."""
    POLICY_CHANGES = "PolicyChange"
    """Of versions; a policy's own row holds its generation and stays."""


class RetentionStore(Protocol):
    """Tables that age is the bound of. Raises as :class:`MetricStore` does; ages are by Postgres' clock."""

    async def forget(self, table: GrowingTable, days: float, at_most: int, *, epoch: Epoch) -> int:
        """Let go of rows that are older, at most so many; return how many, fewer than ``at_most`` when no more are."""
        ...


class LoggedScores(NamedTuple):
    """Scores of a version from the log."""

    groups: Sequence[Sequence[float]]
    """Each entity's are in one of them."""
    calls: int
    """How many there were; the groups may hold a sample."""


class PredictionHistory(Protocol):
    """What a version was asked and answered, for somebody who waits.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
    """

    async def scores(self, version_id: int, since: float, until: float, at_most: int) -> LoggedScores:
        """Return the scores that drift is judged by: of a version's own answers in all roles.

        What the cache answered repeats a score that was counted, and a forced call is somebody's wish: neither is one.

        Args:
            version_id: The version.
            since: In seconds since the epoch, as ``until``.
            until: Not included.
            at_most: About how many are wanted; of more a sample is taken by the calls' hashes, always the same.
        """
        ...

    async def inputs(self, version_id: int, since: float, until: float, at_most: int) -> Sequence[InputSample]:
        """Return logged inputs of a version, by entity; of more than ``at_most`` those of entities chosen by hash."""
        ...


LEASE_SECONDS = 6.0
"""How long a lease that is not renewed is kept for its holder."""


class Lease(Protocol):
    """Who may act as the monitor. One clock judges it for all: that of the place where it is kept."""

    async def take_or_renew(self, holder: str) -> Epoch | None:
        """Return the epoch while ``holder`` leads, as it does for ``LEASE_SECONDS`` from now; ``None``: another may.

        A new holder gets a new epoch. One that is late keeps its own if nobody else was there meanwhile.

        Args:
            holder: A name that no other process has, nor had before.

        Raises:
            RegistryUnavailable: Postgres does not answer in time; the lease may have been taken or renewed.
            MigrationNeeded: The table is not there.
        """
        ...

    async def release(self, holder: str) -> None:
        """Let the next one in at once; nothing happens when ``holder`` does not lead.

        Raises:
            RegistryUnavailable: As :meth:`take_or_renew`.
            MigrationNeeded: As :meth:`take_or_renew`.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class QueuedAlert(NamedTuple):
    """An event on its way to one channel."""

    id: int
    channel: str
    event: AlertEvent
    attempts: int
    """Times that it was taken to be sent, this one included."""


class AlertOutbox(Protocol):
    """Alerts that somebody is still to be told, each once for every channel. Raises as :class:`Lease` does."""

    async def add(self, event: AlertEvent) -> None:
        """Keep an event for every channel; one that resolves an incident that nobody was told of is dropped."""
        ...

    async def due(self, now: float, limit: int) -> Sequence[QueuedAlert]:
        """Take events that are due, oldest first, so that nobody else takes them for a minute.

        Of those with one key and one channel only the oldest is ever taken: the next one waits until that is delivered
        or given up.

        Args:
            now: Seconds since the epoch.
            limit: Most events to take.
        """
        ...

    async def delivered(self, alert_id: int) -> None:
        """Take an event out."""
        ...

    async def failed(self, alert_id: int, error: str, next_attempt_at: float | None) -> None:
        """Keep an event until a later time, or (``None``) for people to look at; one that was delivered stays so."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class AlertChannel(Protocol):
    """A receiver of alerts."""

    @property
    def name(self) -> str:
        """Which events of the outbox are for it."""
        ...

    async def send(self, event: AlertEvent) -> Delivery:
        """Send an event once, within the channel's own deadline, and say what the receiver answered. Never raises."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Telemetry(Protocol):
    """Metrics. Label values come from the registry or from enums, never from a request."""

    def predicted(self, version: ModelVersion, role: str, outcome: str, seconds: float, score: float | None) -> None:
        """Count one call of a version, its duration and its score."""
        ...

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        """Add to the counter ``name`` (docs/reference/metrics.md lists them with their labels, in order)."""
        ...

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to the histogram ``name``."""
        ...

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set the gauge ``name``."""
        ...

    def forget(self, name: str, *labels: str) -> None:
        """Drop the series of the gauge ``name`` with these labels, if there is one: what it measured is gone."""
        ...


class NewRollout(NamedTuple):
    """A rollout to be started. ``salt`` is what the policy hashes meanwhile, ``None`` for the model's name."""

    model_name: str
    challenger: str
    plan: RolloutPlan
    salt: str | None
    slow_us: int | None
    """The champion's 95th percentile of late, in microseconds; ``None`` when nobody knows yet."""


class RolloutRecord(NamedTuple):
    """A rollout. Times are seconds since the epoch."""

    id: int
    state: RolloutState
    revision: int
    """Grows with each change of the state."""
    champion_id: int
    challenger_id: int
    salt: str | None
    slow_us: int | None
    reason: str | None
    started_by: str
    finished_at: float | None
    announced_at: float | None


class RolloutView(NamedTuple):
    """A rollout and what it acts on, read at one moment."""

    record: RolloutRecord
    policy: PolicySeen | None
    weights_percent: Mapping[int, int]
    """The challenger's weight under each generation of the policy that belonged to the rollout."""
    proxies: int
    """Live ones: see ``core.presence``."""
    proxies_on_generation: int
    in_flight: Mapping[int, int]
    """Calls under way by version id, over all live proxies, as of their last reports."""
    read_at: float
    """By Postgres' clock."""
    silent: SilentProxies = NONE_SILENT
    """Those that had not confirmed the policy's generation."""
    all_silent: SilentProxies = NONE_SILENT
    """Those that had as well: none of them has confirmed what is changed next."""


class NewRolloutEvent(NamedTuple):
    """What is written down with a transition; ``inputs`` is all that the verdict rests on."""

    actor: str
    verdict: Verdict | None = None
    evidence: Sequence[Mapping[str, Any]] = ()
    inputs: Mapping[str, Any] = {}
    thresholds: Mapping[str, Any] = {}


class RolloutEventRecord(NamedTuple):
    """One thing that happened to a rollout."""

    id: int
    at: float
    step: int
    phase: str
    verdict: Verdict | None
    reason: str
    evidence: Sequence[Mapping[str, Any]]
    inputs: Mapping[str, Any]
    thresholds: Mapping[str, Any]
    code_version: str
    actor: str
    damage: str = ""
    """Why something of it cannot be read, and is left out; empty for an event that can be."""


class PolicyReach(NamedTuple):
    """How far a model's policy has come, read at one moment."""

    generation: int
    proxies: int
    """Live ones: see ``core.presence``."""
    proxies_on_generation: int
    in_flight: Mapping[int, int]
    """Calls under way by version id, over all live proxies, as of their last reports."""
    monitor_seconds: float | None
    """Since a monitor that leads last said so; ``None`` if none ever did."""
    read_at: float
    """By Postgres' clock."""
    silent: SilentProxies = NONE_SILENT
    """Those that had not confirmed the generation that is asked about."""


class RollbackRecord(NamedTuple):
    """What a rollback by hand did: ``weight 0`` (and more), ``previous champion back``, or nothing and why."""

    model_name: str
    did: str
    generation: int
    champion: str
    challenger: str | None
    rollout_id: int | None
    without_calls: tuple[int, ...] = ()
    """Ids of the model's versions that get none any more."""

    @property
    def changed(self) -> bool:
        """Whether traffic was moved."""
        return not self.did.startswith("nothing")


class RolloutStore(Protocol):
    """Rollouts, their events, and the one way in which they change a policy.

    Raises ``RegistryUnavailable`` and ``MigrationNeeded``; writes with an epoch also ``LeadershipLost``.
    """

    async def start(self, new: NewRollout, origin: Origin, *, expected_generation: int | None = None) -> RolloutRecord:
        """Give the challenger its role at weight 0 and begin a rollout of it, in one transaction.

        Raises:
            NotRegistered: The model has no policy, or no such version.
            GenerationMoved: The policy is not at ``expected_generation``.
            PolicyRefused: The model has an open rollout, or the database refuses the version.
        """
        ...

    async def open_ids(self) -> Sequence[int]:
        """Return the rollouts that are not over, or whose end was not announced, oldest first."""
        ...

    async def latest_id(self, model_name: str) -> int:
        """Return a model's newest rollout.

        Raises:
            NotRegistered: It never had one.
        """
        ...

    async def view(self, rollout_id: int) -> RolloutView:
        """Return a rollout with what it acts on.

        Raises:
            NotRegistered: There is no such rollout.
        """
        ...

    async def list(self, model_name: str | None = None, limit: int = 20) -> Sequence[RolloutRecord]:
        """Return the newest rollouts, of one model or of all, newest first."""
        ...

    async def events(self, rollout_id: int) -> Sequence[RolloutEventRecord]:
        """Return what happened to a rollout, oldest first."""
        ...

    async def apply(
        self,
        view: RolloutView,
        transition: Transition,
        event: NewRolloutEvent,
        alerts: Sequence[AlertEvent] = (),
        *,
        epoch: Epoch | None = None,
    ) -> bool:
        """Carry out a transition whole, in one transaction: policy, versions, state, event and alerts.

        Returns:
            Whether it was; ``False`` when the rollout or the policy is no longer what the transition was decided on.
        """
        ...

    async def set_slow_us(self, rollout_id: int, slow_us: int, *, epoch: Epoch | None = None) -> None:
        """Set the threshold of a slow call, where there is none yet."""
        ...

    async def announce(
        self, view: RolloutView, reason: str, event: NewRolloutEvent, *, epoch: Epoch | None = None
    ) -> None:
        """Write down whether every live proxy has confirmed the end, in the words of ``reason``; once."""
        ...

    async def tell(self, alerts: Sequence[AlertEvent], *, epoch: Epoch | None = None) -> None:
        """Keep alerts that belong to no transition; one that resolves an incident that is not open is dropped."""
        ...

    async def roll_back(self, model_name: str, origin: Origin) -> RollbackRecord:
        """Send all traffic back at once, whatever rollout there is or is not; doing it again changes nothing.

        Raises:
            PolicyRefused: The model has no policy.
        """
        ...

    async def reach(self, model_name: str, generation: int | None = None) -> PolicyReach:
        """Return how many live proxies act on a model's policy, which are silent, and whether a monitor looks at it.

        Args:
            model_name: The model.
            generation: Proxies count that act on this generation or a later one; ``None`` for the newest.

        Raises:
            NotRegistered: The model has no policy.
        """
        ...


class OutcomeResult(Enum):
    """What became of an outcome event."""

    NEW = "new"
    KNOWN = "known"
    """Its ``event_id`` was there before; what came first stands."""


class OutcomeStore(Protocol):
    """``OutcomeEvent``: what happened afterwards, each event once."""

    async def add(self, outcomes: Sequence[Outcome]) -> Sequence[OutcomeResult]:
        """Store those that are not known yet, all or none, and return each one's result, in order.

        Raises:
            RegistryUnavailable: Nothing is known to be stored; adding the same events again is safe.
            MigrationNeeded: The table is not there.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class FileRow(NamedTuple):
    """A row of a table in a file, or why its format makes none of it."""

    line: int
    """From 1 on; in a file without lines the row's number."""
    cells: Mapping[str, Any]
    problem: str = ""


class Allocation(NamedTuple):
    """Who a policy's generation gave the calls to; no champion when the policy was deleted with it."""

    generation: int
    since: float
    """When it was committed, seconds since the epoch."""
    champion_id: int | None
    challenger_id: int | None
    challenger_weight: int
    shadow_id: int | None
    shadow_percent: int
    bucket_key: str
    """What is hashed before the entity."""
    arms: Mapping[int, int] = {}
    """Percent of the entities of each further arm, by its version's id."""

    @property
    def champion_percent(self) -> int:
        """What the others leave."""
        return 100 - self.challenger_weight - sum(self.arms.values())

    def percent_of(self, version_id: int) -> int | None:
        """Return the challenger's or a further arm's share, ``None`` for a version that is neither."""
        return self.challenger_weight if version_id == self.challenger_id else self.arms.get(version_id)


class OutcomeFacts(NamedTuple):
    """What is known of the outcomes of one name."""

    events: int
    is_share: bool
    """Whether every value is 0 or 1: something that happens or does not."""
    known_names: Sequence[str]
    """The names of this model's outcomes, at most twenty."""


class EntityQuery(NamedTuple):
    """Entities that met one of two versions, and what happened to them. Times are seconds since the epoch."""

    model_name: str
    metric: str
    """Name of the outcomes."""
    champion_id: int
    challenger_id: int | None
    """The version compared with it, challenger or further arm. ``None``: only the champion's entities."""
    epochs: Mapping[int, int]
    """Generations of the policy in which an exposure counts, each with the number of its epoch."""
    since: float
    until: float
    within_seconds: float
    """An entity's outcomes count that long after its first exposure."""
    is_share: bool
    """Whether the largest outcome of an entity is its value, and not the sum of all."""
    per_call: bool = False
    """Whether the metric is per call, so that an entity's value is a sum over its calls."""
    slices: int = 1
    """Parts of equal length into which the time of entry is cut."""


class EntityGroup(NamedTuple):
    """Entities of one arm that are alike in all that is compared; the counts are of all of them together.

    The arm is the one that an entity's first exposure was assigned to, whoever answered.
    """

    is_b: bool
    epoch: int
    slice: int
    is_closed: bool
    """Whether the time for their outcomes is over."""
    numerator: float
    denominator: float
    covariate: float | None
    """The numerator of as long a time before the test; ``None`` where the entity was not there."""
    entities: int
    with_outcome: int
    calls: int
    own_calls: int
    """Calls that the arm's own version answered."""
    recent: int
    """Entities that came within the last day."""


class EntityGroups(NamedTuple):
    """The groups of a query, made of ``entities`` of the ``total`` there are: beyond a bound a random sample."""

    groups: Sequence[EntityGroup]
    entities: int
    total: int


class ShadowQuery(NamedTuple):
    """Calls that the champion answered while a shadow was set. Times are seconds since the epoch."""

    champion_id: int
    shadow_id: int
    generations: Sequence[int]
    """Of the policy, in which the shadow was shown calls."""
    since: float
    until: float


class LoggedPair(NamedTuple):
    """One call as the champion answered it and, if the shadow was asked and has a row, what that made of it."""

    prediction_id: str
    predicted_at: float
    entity_id: str
    generation: int
    champion_status: str
    shadow_status: str | None
    champion_us: int | None
    """Latency in microseconds; ``None`` for an answer from the cache."""
    shadow_us: int | None
    champion_score: float | None
    shadow_score: float | None


class ExperimentLog(Protocol):
    """What the log, the outcomes and the audit say about versions. Results are bounded, and so is the time of a call.

    Raises ``RegistryUnavailable`` (also when a call takes too long; its next step says what to ask for instead) and
    ``MigrationNeeded``.
    """

    async def allocations(self, model_name: str) -> Sequence[Allocation]:
        """Return the latest generations of a model's policy, oldest first."""
        ...

    async def outcome_facts(self, model_name: str, metric: str, since: float, until: float) -> OutcomeFacts:
        """Return what is known of a metric's outcomes that occurred in ``[since, until)``."""
        ...

    async def entities(self, query: EntityQuery) -> EntityGroups:
        """Return the entities that entered in ``[since, until)``. Only calls routed by their bucket are exposures."""
        ...

    async def mean_scores(self, query: EntityQuery) -> tuple[Sequence[float], Sequence[float]]:
        """Return the mean score of A's and of B's entities over the calls that their own version answered; a sample."""
        ...

    async def count_calls(self, query: ShadowQuery) -> int:
        """Return how many calls a shadow query is about."""
        ...

    async def pairs(self, query: ShadowQuery, ratio: float) -> Sequence[LoggedPair]:
        """Return about this share (0-1] of the calls: chosen by their prediction ids, so that it is always the same."""
        ...

    async def disagreements(self, query: ShadowQuery, top: int) -> Sequence[LoggedPair]:
        """Return the pairs whose scores differ most, largest first."""
        ...


class NewExperiment(NamedTuple):
    """A test to be declared; ``plan`` is JSON and never changes."""

    model_name: str
    metric: str
    champion_id: int
    challenger_id: int
    started_at: float
    plan: Mapping[str, Any]
    created_by: str


class ExperimentRecord(NamedTuple):
    """A declared test; ``result`` is JSON: the looks that were taken and what they said."""

    id: int
    model_name: str
    metric: str
    champion_id: int
    challenger_id: int
    started_at: float
    plan: Mapping[str, Any]
    result: Mapping[str, Any] | None
    created_by: str
    ended_at: float | None


class ExperimentStore(Protocol):
    """``Experiment``: tests that were declared. Raises ``RegistryUnavailable`` and ``MigrationNeeded``."""

    async def latest(
        self, model_name: str, metric: str, versions: tuple[int, int] | None = None
    ) -> ExperimentRecord | None:
        """Return the newest test of a metric, of these two versions if they are named."""
        ...

    async def declare(self, new: NewExperiment) -> ExperimentRecord | None:
        """Store a test; ``None`` when an open one of these versions and this metric is there already."""
        ...

    async def record(self, before: ExperimentRecord, result: Mapping[str, Any], *, ends: bool) -> bool:
        """Replace the result; ``False``, and nothing is written, when it is no longer the one of ``before``."""
        ...
