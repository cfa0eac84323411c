"""What Postgres says about models, as immutable values in the process: versions, policies, keys, one snapshot."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import Any

from understudy.core.routing.rate_limits import NO_LIMIT, Allowance
from understudy.core.schema.features import Feature
from understudy.core.schema.schema import InputSchema, OutputSchema
from understudy.errors import PolicyNotLoaded, UnknownModel


class Role(StrEnum):
    """What a version is to a request."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    SHADOW = "shadow"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ModelVersion:
    """A trained, deployable artifact and how to call it.

    The same object for as long as its row says the same, so that whatever is open for it stays open. The row's
    ``status`` changes with every change of roles and is none of a version's own: it is in :class:`ServingPolicy`.
    """

    id: int
    model_name: str
    version: str
    protocol: str
    """How its model servers are called; the adapter of that name is found when the version is connected."""
    endpoints: tuple[str, ...]
    input_schema: InputSchema
    output_schema: OutputSchema
    backend: Mapping[str, Any]
    deterministic: bool
    cache_ttl_seconds: int
    timeout_seconds: float
    answer_digest: str
    """16 hex digits of what makes an answer of an assembled input: protocol, ``output_schema`` and ``backend``.

    A version without a role may be corrected in place; what is cached of it from before is another one's then.
    """
    source: Mapping[str, Any] = field(repr=False)
    """The row it was compiled from."""

    @property
    def status(self) -> str:
        """The row's status when it was compiled; ``ServingPolicy.statuses`` has today's."""
        return str(self.source.get("status", ""))

    @property
    def server_model_name(self) -> str:
        """The model's name at its server."""
        return str(self.backend.get("model_name", self.model_name))

    @property
    def server_version(self) -> str | None:
        """The version's name at its server; ``None`` lets the server choose."""
        version = self.backend.get("version")
        return None if version is None else str(version)

    @property
    def caches(self) -> bool:
        """Whether an answer may be used again for the same assembled input."""
        return self.deterministic and self.cache_ttl_seconds > 0


@dataclass(frozen=True, slots=True, eq=False)
class ServingPolicy:
    """One row of ``ServingPolicy`` with the versions it names."""

    model_name: str
    champion: ModelVersion
    challenger: ModelVersion | None = None
    challenger_weight: int = 0
    shadow: ModelVersion | None = None
    shadow_percent: int = 100
    fallback: bool = True
    salt: str | None = None
    category_roles: Mapping[str, Role] = field(default_factory=dict)
    generation: int = 1
    rollout_id: int | None = None
    slow_us: int | None = None
    """The rollout's threshold of a slow call, in microseconds: the champion's p95 when it began."""
    input_sample_percent: int = 0
    """Of the entities, whose inputs are logged."""
    versions: Mapping[str, ModelVersion] = field(default_factory=dict)
    statuses: Mapping[str, str] = field(default_factory=dict)
    """``ModelVersion.status`` by version, as of this policy's rows."""
    arms: Mapping[int, ModelVersion] = field(default_factory=dict)
    """The version that has a bucket, for each bucket of the further arms."""
    category_holdout_percent: int = 0
    """Of the entities whose category routes to the challenger, those that stay with the champion."""
    slices: tuple[Feature, ...] = ()
    """Features that the versions which answer callers mark as slices, the champion's first."""

    @property
    def bucket_key(self) -> str:
        """What is hashed with the entity id."""
        return self.salt or self.model_name

    @property
    def called_ids(self) -> frozenset[int]:
        """The ids of the versions that get calls."""
        challenger = self.challenger if self.challenger_weight else None
        called = (self.champion, challenger, self.shadow, *self.arms.values())
        return frozenset(version.id for version in called if version is not None)

    @property
    def arm_percents(self) -> dict[ModelVersion, int]:
        """The percent of the entities that each further arm has."""
        return dict(Counter(self.arms.values()))

    def role_of(self, version: ModelVersion) -> Role:
        """Return the role a forced version is logged under; one without a role answers as a champion would."""
        if self.challenger is not None and version.id == self.challenger.id:
            return Role.CHALLENGER
        if version in self.arms.values():
            return Role.CHALLENGER
        if self.shadow is not None and version.id == self.shadow.id:
            return Role.SHADOW
        return Role.CHAMPION


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A caller's key as the registry knows it: never the secret, only its hash."""

    id: str
    sha256: bytes
    scopes: frozenset[str]
    tenant: str | None = None
    """Keys of one tenant use what they may together."""
    allowance: Allowance = NO_LIMIT
    expires_at: float = inf
    """From then on it is refused; seconds since the epoch."""


@dataclass(frozen=True, slots=True, eq=False)
class PolicySnapshot:
    """Every policy at one moment. Swapped whole: a request reads one snapshot from start to end."""

    policies: Mapping[str, ServingPolicy] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Models whose newest rows cannot be used, or not all of them, with the reason."""
    cache_secret: bytes | None = field(default=None, repr=False)
    """What values of the shared cache are authenticated by; ``None`` where the registry has none for this process."""

    def has(self, version: ModelVersion) -> bool:
        """Whether this very version is one of its model's."""
        policy = self.policies.get(version.model_name)
        return policy is not None and policy.versions.get(version.version) is version

    def knows(self, model_name: str) -> bool:
        """Whether there is a policy of the model, or a reason why it was rejected."""
        return model_name in self.policies or model_name in self.rejected

    def slow_us_of(self, rollout_id: int) -> int | None:
        """Return a rollout's threshold of a slow call, in microseconds, while a policy belongs to it."""
        if not rollout_id:
            return None
        return next((one.slow_us for one in self.policies.values() if one.rollout_id == rollout_id), None)

    def has_champion_alone(self, rollout_id: int, generation: int) -> bool:
        """Whether a rollout's policy is of a generation, and splits no calls; ``False`` of generations before."""
        own = (one for one in self.policies.values() if one.rollout_id == rollout_id)
        return any(one.generation == generation and not (one.challenger_weight or one.arms) for one in own)

    def rollout_ids(self) -> frozenset[int]:
        """Return the rollouts that policies belong to."""
        return frozenset(one.rollout_id for one in self.policies.values() if one.rollout_id is not None)


def serving_policy_of(snapshot: PolicySnapshot | None, model_name: str) -> ServingPolicy:
    """Return the policy that a model is served by, out of the process's snapshot.

    Raises:
        PolicyNotLoaded: There is no snapshot yet.
        UnknownModel: It has no such model.
    """
    if snapshot is None:
        raise PolicyNotLoaded
    policy = snapshot.policies.get(model_name)
    if policy is None:
        raise UnknownModel
    return policy
