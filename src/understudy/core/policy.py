"""What Postgres says about models, as immutable values in the process.

The *policy document* is the JSON form of those rows: Postgres is read into it, the snapshot file holds it, and
:func:`apply_document` compiles it. Its shape::

    {"models": {"visits": {
        "policy": {"champion_version": 1, "challenger_version": 2, "challenger_weight": 5, "shadow_version": null,
                   "shadow_percent": 100, "fallback": true, "salt": null, "category_roles": {"vip": "champion"},
                   "generation": 41, "rollout_id": null},
        "versions": [{"id": 1, "version": "6", "status": "champion", "protocol": "oip", "endpoints": ["127.0.0.1:9000"],
                      "input_schema": {...}, "output_schema": {...}, "backend": {}, "deterministic": true,
                      "cache_ttl_seconds": 300, "timeout_ms": 500}]}},
     "keys": [{"id": "k1", "sha256": "…64 hex…", "scopes": ["predict", "operate"]}]}

``"policy": null`` means that the model lost its policy.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from understudy.core.schema import InputSchema, OutputSchema
from understudy.core.schema_reader import compile_input_schema, compile_output_schema
from understudy.errors import SchemaInvalid

PolicyDocument = Mapping[str, Any]


class Role(StrEnum):
    """What a version is to a request."""

    CHAMPION = "champion"
    CHALLENGER = "challenger"
    SHADOW = "shadow"


class Protocol(StrEnum):
    """How a model server is spoken to."""

    TFSERVING = "tfserving"
    TORCHSERVE = "torchserve"
    OIP = "oip"


@dataclass(frozen=True, slots=True, eq=False)
class ModelVersion:
    """A trained, deployable artifact and how to call it. ``source`` is the row it was compiled from."""

    id: int
    model_name: str
    version: str
    status: str
    protocol: Protocol
    endpoints: tuple[str, ...]
    input_schema: InputSchema
    output_schema: OutputSchema
    backend: Mapping[str, Any]
    deterministic: bool
    cache_ttl_seconds: int
    timeout_seconds: float
    source: Mapping[str, Any] = field(repr=False)

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
    versions: Mapping[str, ModelVersion] = field(default_factory=dict)

    @property
    def bucket_key(self) -> str:
        """What is hashed with the entity id."""
        return self.salt or self.model_name

    def role_of(self, version: ModelVersion) -> Role:
        """Return the role a forced version is logged under; one without a role answers as a champion would."""
        if self.challenger is not None and version.id == self.challenger.id:
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


@dataclass(frozen=True, slots=True, eq=False)
class PolicySnapshot:
    """Every policy at one moment. Swapped whole: a request reads one snapshot from start to end."""

    policies: Mapping[str, ServingPolicy] = field(default_factory=dict)
    keys: Mapping[str, ApiKey] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)
    """Models whose newest rows cannot be used, with the reason; their last good policy stays."""


def version_from_row(model_name: str, row: Mapping[str, Any]) -> ModelVersion:
    """Compile one version.

    Raises:
        SchemaInvalid: If one of its schemas cannot be compiled.
    """
    return ModelVersion(
        id=int(row["id"]),
        model_name=model_name,
        version=str(row["version"]),
        status=str(row["status"]),
        protocol=Protocol(row["protocol"]),
        endpoints=tuple(row["endpoints"]),
        input_schema=compile_input_schema(row["input_schema"]),
        output_schema=compile_output_schema(row["output_schema"]),
        backend=row.get("backend") or {},
        deterministic=bool(row["deterministic"]),
        cache_ttl_seconds=int(row["cache_ttl_seconds"]),
        timeout_seconds=int(row["timeout_ms"]) / 1000,
        source=row,
    )


def policy_from_rows(model_name: str, rows: Mapping[str, Any], known: Mapping[str, ModelVersion]) -> ServingPolicy:
    """Compile one model's policy; versions in ``known`` whose row is unchanged are used again.

    Raises:
        SchemaInvalid: If a version that the policy names cannot be used. Other versions that cannot be are left out.
    """
    versions: dict[str, ModelVersion] = {}
    unusable: dict[int, SchemaInvalid] = {}
    for row in rows["versions"]:
        previous = known.get(str(row["version"]))
        if previous is not None and previous.source == row:
            versions[previous.version] = previous
            continue
        try:
            compiled = version_from_row(model_name, row)
        except SchemaInvalid as problem:
            unusable[int(row["id"])] = problem
        else:
            versions[compiled.version] = compiled
    by_id = {version.id: version for version in versions.values()}

    def named(version_id: int | None) -> ModelVersion | None:
        if version_id is None:
            return None
        if version_id in unusable:
            raise unusable[version_id]
        if version_id not in by_id:
            msg = f"the policy of {model_name!r} names version id {version_id}, which is not one of its versions"
            raise SchemaInvalid(msg)
        return by_id[version_id]

    policy = rows["policy"]
    champion = named(policy["champion_version"])
    if champion is None:
        msg = f"the policy of {model_name!r} names no champion"
        raise SchemaInvalid(msg)
    return ServingPolicy(
        model_name=model_name,
        champion=champion,
        challenger=named(policy["challenger_version"]),
        challenger_weight=int(policy["challenger_weight"]),
        shadow=named(policy["shadow_version"]),
        shadow_percent=int(policy["shadow_percent"]),
        fallback=bool(policy["fallback"]),
        salt=policy["salt"],
        category_roles={category: Role(role) for category, role in (policy["category_roles"] or {}).items()},
        generation=int(policy["generation"]),
        rollout_id=policy["rollout_id"],
        versions=versions,
    )


def apply_document(snapshot: PolicySnapshot, document: PolicyDocument, *, complete: bool) -> PolicySnapshot:
    """Return the snapshot after reading a document.

    Args:
        snapshot: The snapshot so far.
        document: Some models' rows, or all of them.
        complete: Whether models that the document does not name are gone.

    A model whose rows cannot be used keeps its last good policy and is named in ``rejected``. Rows older than the
    policy at hand (a lower generation, as a lagging replica gives) are ignored.
    """
    policies = {} if complete else dict(snapshot.policies)
    rejected = {} if complete else dict(snapshot.rejected)
    for name, rows in document["models"].items():
        current = snapshot.policies.get(name)
        rejected.pop(name, None)
        try:
            policy = _newest(name, rows, current)
        except (SchemaInvalid, KeyError, ValueError, TypeError) as problem:
            rejected[name] = str(problem)
            policy = current
        if policy is None:
            policies.pop(name, None)
        else:
            policies[name] = policy
    keys = snapshot.keys
    if "keys" in document:
        keys = {
            row["id"]: ApiKey(row["id"], bytes.fromhex(row["sha256"]), frozenset(row["scopes"]))
            for row in document["keys"]
        }
    return PolicySnapshot(policies=policies, keys=keys, rejected=rejected)


def _newest(name: str, rows: Mapping[str, Any], current: ServingPolicy | None) -> ServingPolicy | None:
    """Return the policy that the rows describe, the current one if they are older, or none if it was dropped."""
    if rows["policy"] is None:
        return None
    if current is not None and int(rows["policy"]["generation"]) < current.generation:
        return current
    return policy_from_rows(name, rows, current.versions if current is not None else {})
