"""Compiles the rows of models, policies and keys into a policy snapshot.

The *policy document* is the JSON form of those rows: Postgres is read into it, the snapshot file holds it, and
:func:`apply_document` compiles it. Its shape::

    {"models": {"visits": {
        "policy": {"champion_version": 1, "challenger_version": 2, "challenger_weight": 5, "shadow_version": null,
                   "shadow_percent": 100, "fallback": true, "salt": null, "category_roles": {"vip": "champion"},
                   "generation": 41, "rollout_id": null, "slow_us": null, "input_sample_percent": 0,
                   "arms": [{"version_id": 9, "first": 90, "last": 99}]},
        "versions": [{"id": 1, "version": "6", "status": "champion", "protocol": "oip", "endpoints": ["127.0.0.1:9000"],
                      "input_schema": {...}, "output_schema": {...}, "backend": {}, "deterministic": true,
                      "cache_ttl_seconds": 300, "timeout_ms": 500}]}},
     "keys": [{"id": "k1", "sha256": "…64 hex…", "scopes": ["predict", "operate"]}],
     "cache_secret": "…64 hex…"}

``"policy": null`` means that the model lost its policy. A model's rows are looked at when its turn comes, and each key
once, so that they may be decoded then. No document, whatever it holds, makes compiling it fail: what cannot be used is
left out, and :attr:`PolicySnapshot.rejected` says why.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from math import inf
from typing import Any, NamedTuple

import orjson

from understudy.core.routing.buckets import LAST_BUCKET
from understudy.core.routing.policy import (
    ApiKey,
    ModelVersion,
    PolicySnapshot,
    Role,
    ServingPolicy,
)
from understudy.core.routing.rate_limits import Allowance
from understudy.core.schema.compile import MAX_SLICE_FEATURES, compile_input_schema, compile_output_schema
from understudy.core.schema.features import Feature
from understudy.core.schema.schema import InputSchema
from understudy.errors import SchemaInvalid

PolicyDocument = Mapping[str, Any]
MAX_PERCENT = 100
MIN_SECRET_BYTES = 32


class Schemas:
    """Compiled schemas by their documents: most versions take what the one before took, and most of a family's do.

    Args:
        protocols: Those of model servers that this release speaks; ``None`` where no call will be made.
    """

    def __init__(self, protocols: Collection[str] | None = None) -> None:
        self._inputs: dict[bytes, InputSchema] = {}
        self._protocols = protocols

    def protocol(self, name: Any) -> str:
        """Return a version's protocol.

        Raises:
            SchemaInvalid: This release does not speak it: a later one registered the version.
        """
        if self._protocols is not None and name not in self._protocols:
            raise SchemaInvalid(f"this release speaks no protocol {name!r} to model servers")
        return str(name)

    def input_schema(self, document: Any) -> InputSchema:
        """Return the compiled ``input_schema``; of documents that are alike to the letter, the same one.

        Raises:
            SchemaInvalid: It cannot be used.
        """
        try:
            letters = orjson.dumps(document)
        except orjson.JSONEncodeError:  # not out of a JSON text, or deeper than one may be
            return compile_input_schema(document)
        known = self._inputs.get(letters)
        if known is None:
            known = self._inputs[letters] = compile_input_schema(document)
        return known


def version_from_row(model_name: str, row: Mapping[str, Any], schemas: Schemas | None = None) -> ModelVersion:
    """Compile one version; with ``schemas``, its input schema only if that was not compiled before.

    Raises:
        SchemaInvalid: If the row cannot be used, whatever is in it.
    """
    schemas = schemas or Schemas()
    with _only_schema_invalid("the version's row cannot be read"):
        return ModelVersion(
            id=int(row["id"]),
            model_name=model_name,
            version=str(row["version"]),
            protocol=schemas.protocol(row["protocol"]),
            endpoints=_texts(row["endpoints"], "endpoints"),
            input_schema=schemas.input_schema(row["input_schema"]),
            output_schema=compile_output_schema(row["output_schema"]),
            backend=_backend(row.get("backend")),
            deterministic=bool(row["deterministic"]),
            cache_ttl_seconds=int(row["cache_ttl_seconds"]),
            timeout_seconds=int(row["timeout_ms"]) / 1000,
            answer_digest=_answer_digest(row),
            source=row,
        )


def _answer_digest(row: Mapping[str, Any]) -> str:
    # By repr, which nothing in a row makes fail; keys in another order cost no more than a miss.
    made_by = repr((row["protocol"], row["output_schema"], row.get("backend")))
    return blake2b(made_by.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def apply_document(
    snapshot: PolicySnapshot,
    document: PolicyDocument,
    *,
    complete: bool,
    protocols: Collection[str] | None = None,
) -> PolicySnapshot:
    """Return the snapshot after reading a document; never fails.

    Args:
        snapshot: The snapshot so far.
        document: Some models' rows, or all of them.
        complete: Whether models that the document does not name are gone.
        protocols: Those of model servers that this release speaks, so that the policy is the one that a proxy acts on;
            ``None`` takes any.

    A challenger, arm or shadow that cannot be used is left out, and its share is 0. Only where no version could answer
    (the champion cannot be used, or the policy itself) the model keeps its last good policy; weight 0 and the end of
    all further arms hold for that too. A key that cannot be read opens nothing.
    """
    compiling = Compiling(snapshot, document, complete=complete, protocols=protocols)
    for _ in compiling.each_model():
        pass
    return compiling.snapshot()


class Compiling:
    """What :func:`apply_document` does, model by model, so that an event loop can serve callers in between."""

    def __init__(
        self,
        snapshot: PolicySnapshot,
        document: PolicyDocument,
        *,
        complete: bool,
        protocols: Collection[str] | None = None,
    ) -> None:
        self._before = snapshot
        self._document = document
        self._policies = {} if complete else dict(snapshot.policies)
        self._rejected = {} if complete else dict(snapshot.rejected)
        self._schemas = Schemas(protocols)

    def each_model(self) -> Iterator[str]:
        """Compile the models of the document; yields the name of each one when it is done."""
        for name, rows in self._document["models"].items():
            self._policies.pop(name, None)
            self._rejected.pop(name, None)
            policy, problem = _read_model(name, rows, self._before.policies.get(name), self._schemas)
            if policy is not None:
                self._policies[name] = policy
            if problem:
                self._rejected[name] = problem
            yield name

    def snapshot(self) -> PolicySnapshot:
        """Return the snapshot, once :meth:`each_model` is at its end."""
        keys = _keys_from(self._document["keys"]) if "keys" in self._document else self._before.keys
        has_secret = "cache_secret" in self._document
        secret = _secret_from(self._document["cache_secret"]) if has_secret else self._before.cache_secret
        return PolicySnapshot(policies=self._policies, keys=keys, rejected=self._rejected, cache_secret=secret)


def _read_model(
    name: str, rows: Any, current: ServingPolicy | None, schemas: Schemas
) -> tuple[ServingPolicy | None, str]:
    """Return the policy to act on, if any, and what of the rows cannot be used."""
    policy = None
    try:
        with _only_schema_invalid("the policy's row cannot be read"):
            policy = rows["policy"]
            if policy is None:
                return None, ""
            known = current.versions if current is not None else {}
            return _policy_from_rows(name, policy, rows["versions"], known, schemas)
    except SchemaInvalid as problem:
        return current and _taken_back(current, policy), str(problem)


def _policy_from_rows(
    name: str,
    policy: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    known: Mapping[str, ModelVersion],
    schemas: Schemas,
) -> tuple[ServingPolicy, str]:
    """Compile one model's policy; versions in ``known`` whose row is unchanged are used again.

    Raises:
        SchemaInvalid: If no version could answer. A challenger, arm or shadow that cannot be used is named instead;
            other versions that cannot be used are left out.
    """
    read = [(row, _read_version(name, row, known, schemas)) for row in rows]
    versions = {found.version: found for _, found in read if isinstance(found, ModelVersion)}
    by_id = {found.id: found for _, found in read}
    champion = _named(by_id, Role.CHAMPION, policy["champion_version"])
    if not isinstance(champion, ModelVersion):
        raise SchemaInvalid("there is no champion" if champion is None else champion.problem)
    others = [_named(by_id, role, policy[f"{role}_version"]) for role in (Role.CHALLENGER, Role.SHADOW)]
    challenger, shadow = (found if isinstance(found, ModelVersion) else None for found in others)
    weight = _percent(policy, "challenger_weight")
    if others[0] is champion:
        raise SchemaInvalid("the challenger is the champion itself")
    arms, arm_problems = _arms_from(by_id, policy.get("arms") or ())
    compiled = ServingPolicy(
        model_name=name,
        champion=champion,
        challenger=challenger,
        challenger_weight=weight if challenger is not None else 0,
        shadow=shadow,
        shadow_percent=_percent(policy, "shadow_percent"),
        fallback=bool(policy["fallback"]),
        salt=policy["salt"],
        category_roles={category: Role(role) for category, role in (policy["category_roles"] or {}).items()},
        generation=int(policy["generation"]),
        rollout_id=policy["rollout_id"],
        slow_us=policy.get("slow_us"),
        # A snapshot file of an earlier version of the code does not have it.
        input_sample_percent=int(policy.get("input_sample_percent", 0)),
        category_holdout_percent=int(policy.get("category_holdout_percent") or 0),
        versions=versions,
        statuses={found.version: str(row.get("status", "")) for row, found in read if isinstance(found, ModelVersion)},
        arms=arms,
        slices=_slices_of(champion, challenger, *arms.values()),
    )
    problems = [*(found.problem for found in others if isinstance(found, _Unusable)), *arm_problems]
    if weight and others[0] is None:
        problems.append(f"challenger_weight is {weight}, and there is no challenger")
    return compiled, "; ".join(problems)


def _slices_of(*versions: ModelVersion | None) -> tuple[Feature, ...]:
    """Return what versions mark as slices, each name once; of more than one version may have, the first ones."""
    named: dict[str, Feature] = {}
    for version in versions:
        for feature in () if version is None else version.input_schema.slices:
            named.setdefault(feature.name, feature)
    return tuple(named.values())[:MAX_SLICE_FEATURES]


def _percent(policy: Mapping[str, Any], name: str) -> int:
    """Return a share from 0 to 100. The database refuses others as long as its guards are in place."""
    value = int(policy[name])
    if not 0 <= value <= MAX_PERCENT:
        raise SchemaInvalid(f"{name} is {value}, which is no percentage from 0 to {MAX_PERCENT}")
    return value


class _Unusable(NamedTuple):
    """In the place of a version that cannot be used."""

    id: int | None
    problem: str


def _read_version(
    model_name: str, row: Mapping[str, Any], known: Mapping[str, ModelVersion], schemas: Schemas
) -> ModelVersion | _Unusable:
    version_id = None
    try:
        with _only_schema_invalid("the version's row cannot be read"):
            version_id = int(row["id"])
            previous = known.get(row["version"])
            if previous is not None and {**previous.source, "status": None} == {**row, "status": None}:
                return previous
        return version_from_row(model_name, row, schemas)
    except SchemaInvalid as problem:
        return _Unusable(version_id, str(problem))


def _arms_from(
    by_id: Mapping[int | None, ModelVersion | _Unusable], ranges: Any
) -> tuple[dict[int, ModelVersion], list[str]]:
    """Return the further arm of each bucket, and why the champion has some of those buckets instead."""
    buckets: dict[int, ModelVersion] = {}
    problems: dict[str, None] = {}
    try:
        with _only_schema_invalid("the arms cannot be read"):
            for arm in ranges:
                found = _named(by_id, "arm", arm["version_id"])
                if isinstance(found, ModelVersion):
                    first, last = max(int(arm["first"]), 0), min(int(arm["last"]), LAST_BUCKET)
                    buckets.update(dict.fromkeys(range(first, last + 1), found))
                else:
                    problems["an arm has no version" if found is None else found.problem] = None
    except SchemaInvalid as problem:
        return {}, [str(problem)]
    return buckets, list(problems)


def _named(by_id: Mapping[int | None, ModelVersion | _Unusable], role: str, version_id: Any) -> Any:
    """Return the version with this role, ``None`` where the policy names none, or why the named one is missing."""
    if version_id is None:
        return None
    found = by_id.get(int(version_id))
    if found is None:
        return _Unusable(None, f"the {role} is version id {int(version_id)}, which is not one of the model's versions")
    return found if isinstance(found, ModelVersion) else _Unusable(found.id, f"the {role}: {found.problem}")


def _taken_back(current: ServingPolicy, policy: Any) -> ServingPolicy:
    """Return the policy without the traffic that a row takes back of which nothing else can be used."""
    if not isinstance(policy, Mapping):
        return current
    if current.challenger_weight and policy.get("challenger_weight") == 0:
        current = replace(current, challenger_weight=0)
    if current.arms and policy.get("arms") == []:
        current = replace(current, arms={})
    return current


def _keys_from(rows: Any) -> dict[str, ApiKey]:
    keys: dict[str, ApiKey] = {}
    for row in rows if isinstance(rows, list | tuple) else ():
        with suppress(SchemaInvalid), _only_schema_invalid("the key's row cannot be read"):
            keys[str(row["id"])] = ApiKey(
                str(row["id"]),
                bytes.fromhex(row["sha256"]),
                frozenset(_texts(row["scopes"], "scopes")),
                # A snapshot file of an earlier version of the code has none of these.
                tenant=row.get("tenant"),
                allowance=Allowance(_rate(row.get("calls_per_second")), _rate(row.get("bytes_per_second"))),
                expires_at=_moment(row.get("expires_at")),
            )
    return keys


def _moment(value: Any) -> float:
    """Return when a key ends, in seconds since the epoch; what is no number ends it at once, and nothing never does."""
    if value is None:
        return inf
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _secret_from(text: Any) -> bytes | None:
    """Return the secret of the shared cache; ``None`` where there is none, or one so short that it can be guessed."""
    try:
        secret = bytes.fromhex(text)
    except (TypeError, ValueError):
        return None
    return secret if len(secret) >= MIN_SECRET_BYTES else None


def _rate(value: Any) -> float | None:
    if value is None:
        return None
    if not 0 < float(value) < inf:
        raise SchemaInvalid("a rate is a number above 0")
    return float(value)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        raise SchemaInvalid(f"{what}: expected a list of strings")
    return tuple(value)


def _backend(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise SchemaInvalid("backend: expected an object")
    return value


@contextmanager
def _only_schema_invalid(what: str) -> Iterator[None]:
    """Turn every failure that a row's content causes into the one error that makes this row, and no other, unusable."""
    try:
        yield
    except SchemaInvalid:
        raise
    except Exception as problem:
        raise SchemaInvalid(f"{what}: {type(problem).__name__}: {problem}") from problem
