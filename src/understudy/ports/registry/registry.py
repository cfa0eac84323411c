"""Models, versions, policies, keys and the audit, as operators and commands change them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from understudy.core.loading.replicas import Replicas
from understudy.core.routing.arms import BucketRange, Split

if TYPE_CHECKING:  # numpy, which a list of models does not need
    from understudy.core.drift.baseline import Baselines

STAGING, RETIRED = "staging", "retired"
"""What ``ModelVersion.status`` says of a version without a role; the other three are roles, and follow the policy."""


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
    base_model: str | None = None
    """What the version was trained from, such as ``llama-70b-v1``; the risk of a rollout rests on it."""
    family: str | None = None
    """Of base models; ``None``: the base model's name up to its first hyphen."""
    backend: Mapping[str, Any] = {}
    deterministic: bool = True
    cache_ttl_seconds: int = 300
    timeout_ms: int = 500
    endpoints: tuple[str, ...] = ()
    """Targets ``host:port`` of its model servers."""
    group_name: str | None = None
    """The group of servers that agents load it onto, for two hours while it has no role; ``None``: none does."""
    requires_validation: bool = False
    """Of a version that agents load: whether it gets a role, or a larger share, only with a validation that holds."""
    replicas: Replicas | None = None
    """Of a version that agents load: on how many servers of the group it is to be; ``None``: on every one."""


class VersionRecord(NamedTuple):
    """A registered version."""

    id: int
    model_name: str
    version: str
    status: str
    artifact_path: str
    artifact_digest: str | None
    base_model: str | None
    family: str | None
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


class VersionPage(NamedTuple):
    """Which versions of a list are asked for."""

    after_id: int = 0
    """Only later ones than this."""
    at_most: int | None = None
    """``None``: as many as there are."""
    models: Collection[str] | None = None
    """Only of these models; ``None``: of all."""


EVERY_VERSION = VersionPage()


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
    """Live ones: see ``core.routing.proxy_liveness``."""
    proxies_on_generation: int
    """Those of them that act on this generation."""
    input_sample_percent: int = 0
    """Of the entities, whose inputs are logged."""
    arms: tuple[BucketRange, ...] = ()
    """The buckets of further versions, in their order."""
    guard: str = "rollback"
    """What the monitor does when a split that no rollout moves does worse: ``rollback``, ``alert`` or ``off``."""
    on_drift: str = "alert"
    """What it does when a challenger drifts from the champion on the same hours: ``alert`` or ``rollback``."""
    category_holdout_percent: int = 0
    """Of the entities whose category routes to the challenger, those that stay with the champion."""

    @property
    def split(self) -> Split:
        """Who has which buckets."""
        return Split(self.champion, self.challenger, self.challenger_weight, self.arms)


class ChangedPolicy(NamedTuple):
    """A policy before and after one change, by what the change itself found: other actors' changes are not in it."""

    before: PolicyRecord | None
    """``None``: the model had no policy."""
    after: PolicyRecord

    @property
    def is_changed(self) -> bool:
        """Whether the policy was not like that already."""
        return self.before is None or self.after.generation != self.before.generation


class FileWords(NamedTuple):
    """The file that a policy is applied from, and what it says: ``arms`` are the percent of each version."""

    path: str
    fields: Mapping[str, Any]


class AppliedFile(NamedTuple):
    """The file that a policy was last applied from, and what it said then."""

    model_name: str
    path: str
    fields: Mapping[str, Any]
    generation: int
    """Of the policy, as it was applied."""
    applied_at: datetime
    applied_by: str


class ModelRecord(NamedTuple):
    """A model: its policy, when it has one, and how many versions are registered."""

    model_name: str
    policy: PolicyRecord | None
    version_count: int


class AuditSubject(StrEnum):
    """What a change in the audit was of."""

    POLICY = "policy"
    VERSION = "version"
    ENDPOINT = "endpoint"
    KEY = "key"
    SUBSCRIPTION = "subscription"


class AuditEntry(NamedTuple):
    """One change, as a trigger of the database wrote it down.

    ``before`` and ``after`` are a policy's whole rows; of anything else an update has only the columns that changed,
    and a value of more than 2,048 bytes is told by its digest.
    """

    id: int
    """Unique among policies, and among everything else."""
    model_name: str | None
    """``None`` for a key, and for a subscription to all models."""
    generation: int | None
    """Of the policy; ``None`` for anything else."""
    changed_at: datetime
    actor: str
    via: str
    reason: str | None
    action: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None
    subject: AuditSubject
    subject_id: str | None
    """The id of the row that changed; of a policy its model, of a subscription its name."""
    version: str | None
    """The label of the version that changed, or whose endpoint did."""


class AuditPlace(NamedTuple):
    """Where a page of the audit ended, by ids: of changes in one transaction the time is the same."""

    policy: int | None = None
    """The oldest change of a policy that was shown; ``None``: none was."""
    other: int | None = None
    """The same of everything else."""


class AuditFilter(NamedTuple):
    """Which changes of the audit are asked for; ``None``: whatever it is."""

    actor: str | None = None
    via: str | None = None
    since: datetime | None = None
    generation: int | None = None
    """Of a policy."""
    after: AuditPlace = AuditPlace()
    """Only what follows this place: older changes."""


EVERY_CHANGE = AuditFilter()


class KeyRecord(NamedTuple):
    """A caller's key, without its secret, which is not stored."""

    id: str
    scopes: tuple[str, ...]
    note: str | None
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    tenant: str | None = None
    calls_per_second: float | None = None
    bytes_per_second: float | None = None
    expires_at: datetime | None = None
    """From then on it is refused; ``None``: it is good until it is revoked."""


class KeyLimits(NamedTuple):
    """What a key may use, with whom, and until when; ``None``: what the proxy's settings say, and for good."""

    tenant: str | None = None
    calls_per_second: float | None = None
    bytes_per_second: float | None = None
    expires_at: datetime | None = None


NO_KEY_LIMITS = KeyLimits()


class Actor(NamedTuple):
    """Who made a change, with which tool, and why.

    The database believes ``name`` only from a login that may speak for others.
    """

    name: str
    via: str
    reason: str | None = None


class Registry(Protocol):
    """Versions, policies, keys and the audit, for commands and control calls; no predict call waits for it.

    Every method raises ``RegistryUnavailable`` when Postgres does not answer in time, and every write ``PolicyRefused``
    with the database's own words and advice when it refuses. With ``dry_run`` a write is tried and taken back.
    """

    async def add_version(
        self, new: NewVersion, actor: Actor, *, replace: bool = False, dry_run: bool = False
    ) -> VersionRecord:
        """Register a version with its endpoints; ``actor``, here and below, is for the audit.

        With ``replace`` a version of its name gets all that ``new`` says in place of what it had, and keeps its id.

        Raises:
            AlreadyRegistered: The model has a version of this name.
            VersionInUse: It was to be replaced, and was deployed or called, or agents have it loaded.
        """

    async def list_versions(
        self, model_name: str | None = None, *, only: VersionPage = EVERY_VERSION
    ) -> Sequence[VersionRecord]:
        """Return the versions of a model, or of all, or a page of them, oldest first; an unknown model has none."""

    async def show_version(self, model_name: str, version: str) -> VersionRecord:
        """Return one version.

        Raises:
            NotRegistered: There is no such version; the message names those there are.
        """

    async def add_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        """Give a version one more model server; one that it has already changes nothing.

        Raises:
            NotRegistered: There is no such version.
        """

    async def remove_endpoint(
        self, model_name: str, version: str, target: str, actor: Actor, *, dry_run: bool = False
    ) -> VersionRecord:
        """Take a model server away from a version.

        Raises:
            NotRegistered: There is no such version, or it has no such endpoint.
        """

    async def set_baselines(
        self,
        model_name: str,
        version: str,
        baselines: "Baselines",
        actor: Actor,
        *,
        source: str,
        dry_run: bool = False,
    ) -> VersionChange:
        """Replace a version's baselines of some subjects, and keep everything else of its metrics.

        ``actor``, and as ``source`` what the new ones were made from, are kept beside them.

        Raises:
            NotRegistered: There is no such version.
        """

    async def set_retired(
        self, model_name: str, version: str, actor: Actor, *, is_retired: bool, dry_run: bool = False
    ) -> VersionChange:
        """Retire a version, or make a retired one staging again; one that is so already changes nothing.

        Raises:
            NotRegistered: There is no such version.
            PolicyRefused: It was to be retired, and has a role, or a part in a rollout that is not over.
        """

    async def list_models(self) -> Sequence[ModelRecord]:
        """Return every model that has a policy or a version, by name."""

    async def show_model(self, model_name: str) -> ModelRecord:
        """Return one model.

        Raises:
            NotRegistered: It has neither a policy nor a version.
        """

    async def set_policy(
        self,
        model_name: str,
        changes: Mapping[str, Any],
        actor: Actor,
        *,
        expected_generation: int | None = None,
        file: FileWords | None = None,
        dry_run: bool = False,
    ) -> ChangedPolicy:
        """Change a model's policy, or make its first one; return it as the change found it and as it left it.

        Args:
            model_name: The model.
            changes: New values by fields of :class:`PolicyRecord`; a role's is the version's text or ``None``, and in
                ``arms`` too versions are named by their text.
            actor: For the audit.
            expected_generation: Change nothing unless the policy is at this generation; 0: unless there is none.
            file: What the change comes from, kept in the same transaction.
            dry_run: Return what the change would be, and make none.

        Raises:
            NotRegistered: A role names a version that the model does not have.
            GenerationMoved: The policy is at another generation.
        """

    async def list_applied(self, model_name: str | None = None) -> Sequence[AppliedFile]:
        """Return the file that a model's policy was last applied from, or that of each; without one there is none."""

    async def list_audit(
        self,
        model_name: str | None = None,
        limit: int = 50,
        subject: AuditSubject | None = None,
        *,
        only: AuditFilter = EVERY_CHANGE,
    ) -> Sequence[AuditEntry]:
        """Return the latest changes of a model, or of all models and of keys, latest first.

        With a ``subject`` only those of such things.
        """

    async def add_key(
        self,
        key_id: str,
        sha256: str,
        scopes: Sequence[str],
        *,
        note: str | None,
        actor: Actor,
        limits: KeyLimits,
    ) -> KeyRecord:
        """Store a key that ``actor`` made; ``sha256`` is of its secret, in hex."""

    async def list_keys(self, newest: int | None = None) -> Sequence[KeyRecord]:
        """Return every key, or the so many ``newest`` ones, revoked ones too, oldest first."""

    async def revoke_key(self, key_id: str, actor: Actor) -> KeyRecord:
        """Revoke a key; one that is revoked stays so.

        Raises:
            NotRegistered: There is no such key.
        """

    async def close(self) -> None:
        """Close the connections."""
