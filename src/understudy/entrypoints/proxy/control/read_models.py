"""Read models of the policy snapshot for the read-only routes: pure functions from values to JSON."""

from itertools import islice
from typing import Any
from urllib.parse import quote

from understudy.core.requests.example import example_inputs
from understudy.core.routing.policy import ModelVersion, PolicySnapshot, Role, ServingPolicy
from understudy.core.schema.features import Feature
from understudy.core.schema.tensors import Datatype
from understudy.serving.upstream.champion_health import ChampionHealth

MAX_NAMED = 20
"""Most rejected models that `/readyz` names."""
MAX_REASON = 255
"""Most characters of the reason of each."""
DRAINING_DETAIL = {"status": "draining", "detail": "this proxy shuts down gracefully; send calls to another one"}


def model_summary(policy: ServingPolicy) -> dict[str, Any]:
    """Return one entry of the model list."""
    return {
        "model": policy.model_name,
        "champion": policy.champion.version,
        "challenger": policy.challenger.version if policy.challenger else None,
        "challenger_weight": policy.challenger_weight,
        "arms": {version.version: percent for version, percent in policy.arm_percents.items()},
        "shadow": policy.shadow.version if policy.shadow else None,
        "generation": policy.generation,
    }


def model_detail(policy: ServingPolicy, example_entity: str = "customer-42") -> dict[str, Any]:
    """Return a model with its versions, its split, and an example request that works as it stands."""
    return {
        **model_summary(policy),
        "shadow_percent": policy.shadow_percent if policy.shadow else 0,
        "fallback": policy.fallback,
        "salt": policy.salt,
        "category_roles": dict(policy.category_roles),
        "category_holdout_percent": policy.category_holdout_percent,
        "versions": [version_detail(version, policy) for version in policy.versions.values()],
        "example": {
            "method": "POST",
            "path": f"/v1/models/{quote(policy.model_name, safe='')}/predict",
            "body": {"entity_id": example_entity, "inputs": example_inputs(policy.champion)},
        },
    }


def version_detail(version: ModelVersion, policy: ServingPolicy) -> dict[str, Any]:
    """Return one version: role, protocol, inputs."""
    roles = {policy.champion.id: Role.CHAMPION}
    roles.update({arm.id: Role.CHALLENGER for arm in (policy.challenger, *policy.arm_percents) if arm is not None})
    if policy.shadow is not None:
        roles[policy.shadow.id] = Role.SHADOW
    return {
        "version": version.version,
        "role": roles.get(version.id),
        "status": policy.statuses.get(version.version, version.status),
        "protocol": version.protocol,
        "replicas": len(version.endpoints),
        "cached": version.caches,
        "timeout_ms": int(version.timeout_seconds * 1000),
        "inputs": [_feature_detail(feature) for feature in version.input_schema.features],
    }


def _feature_detail(feature: Feature) -> dict[str, Any]:
    detail: dict[str, Any] = {"name": feature.name, "datatype": feature.datatype.wire_name}
    if feature.shape:
        detail["shape"] = list(feature.shape)
    if feature.minimum is not None:
        detail["min"] = feature.minimum
    if feature.maximum is not None:
        detail["max"] = feature.maximum
    if feature.enum:
        detail["enum"] = list(feature.enum)
    if feature.datatype is Datatype.BYTES and not feature.enum:
        detail["max_bytes"] = feature.max_bytes
    if feature.stored:
        detail["source"] = "store"
    if feature.per_treatment:
        detail["per"] = "treatment"
    detail["required"] = not feature.has_default and not feature.stored
    if feature.has_default:
        detail["default"] = feature.default
    return detail


def readiness(
    snapshot: PolicySnapshot | None, found: ChampionHealth, *, degraded: bool, age_seconds: float | None
) -> tuple[bool, dict[str, Any]]:
    """Return whether the proxy can answer calls, and its health as a document of bounded size.

    Args:
        snapshot: The policies; ``None`` before the first read.
        found: The result of the champions' health checks.
        degraded: Whether Postgres does not confirm the policies.
        age_seconds: Time since Postgres last confirmed them; ``None``: never yet.
    """
    if snapshot is None:
        return False, {"status": "starting", "detail": "no policy has been read yet"}
    models = len(snapshot.policies)
    detail: dict[str, Any] = {
        "status": ("degraded" if degraded else "ready") if found.is_reachable else "unreachable",
        "models": models,
        "policy_age_seconds": round(age_seconds, 3) if age_seconds is not None else None,
    }
    if not found.is_reachable:
        detail["detail"] = "no champion's model server answers"
        if found.asked < models:
            detail["detail"] = (
                f"{found.asked} of {models} champions were checked in time and none answers; the next check goes on"
            )
    if snapshot.rejected:
        named = islice(snapshot.rejected.items(), MAX_NAMED)
        detail["rejected"] = {name: why[:MAX_REASON] for name, why in named}
        detail["rejected_models"] = len(snapshot.rejected)
    return found.is_reachable, detail
