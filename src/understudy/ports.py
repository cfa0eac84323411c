"""One Protocol per outside thing: reading this page tells what Understudy depends on.

Each has a real adapter; those that the request and its background work meet have an in-memory twin as well
(``adapters/memory_*.py``), and both pass the port's contract suite.
Errors that a port may raise are named on its methods; an adapter lets no vendor's error through.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from typing import Any, NamedTuple, Protocol

from understudy.core.policy import ModelVersion, PolicyDocument
from understudy.core.prediction import COLUMNS, PredictionRow
from understudy.core.tensors import Row, Tensor


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

    async def report(self, instance: str, generations: Mapping[str, int]) -> None:
        """Record which generation of each model this proxy instance acts on.

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
    """Proxies that were seen within the last half minute."""
    proxies_on_generation: int
    """Those of them that act on this generation."""


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
            changes: New values by fields of :class:`PolicyRecord`; a role's is the version's text or ``None``.
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

        Raises:
            RegistryUnavailable: Postgres does not answer in time.
        """
        ...

    async def write(self, batch: SpooledBatch) -> WriteResult:
        """Insert the rows and move the spool's offset to ``batch.end`` in one transaction.

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
