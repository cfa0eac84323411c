"""What callers of dialects may know of models: the versions that they name, and the list of all."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from understudy.core.routing.policy import ModelVersion, PolicySnapshot, ServingPolicy
from understudy.entrypoints.proxy.dialects.dialect import Target
from understudy.errors import PolicyNotLoaded, UnknownVersion

RETIRED = "retired"
MAX_INDEXED = 10_000
"""Versions that the repository index names."""
CHAMPIONS_LABELS = frozenset({"stable", "latest"})
CHALLENGERS_LABEL = "canary"


class Indexed(NamedTuple):
    """A version in the repository index."""

    name: str
    version: str
    state: str
    reason: str


def labelled(policy: ServingPolicy, label: str) -> ModelVersion | None:
    """Return the version that a label stands for: ``stable`` and ``latest`` the champion, ``canary`` the challenger."""
    if label in CHAMPIONS_LABELS:
        return policy.champion
    return policy.challenger if label == CHALLENGERS_LABEL else None


def named_version(policy: ServingPolicy, target: Target) -> ModelVersion:
    """Return the version that a target names; the champion where it names none.

    Raises:
        UnknownVersion: The model has no such version, or no such label.
    """
    if not target.names_version:
        return policy.champion
    found = named_by(policy, target)
    if found is None:
        what = f"label {target.label!r}" if target.label is not None else f"version {target.version!r}"
        raise UnknownVersion(f"{target.model_name} has no {what}"[:255])
    return found


def named_by(policy: ServingPolicy, target: Target) -> ModelVersion | None:
    """Return the version that a target names by its label or its name, if it names one that there is."""
    if target.label is not None:
        return labelled(policy, target.label)
    return policy.versions.get(target.version or "")


def not_retired(policy: ServingPolicy) -> list[str]:
    """Return the labels of a model's versions that are not retired."""
    return [
        label for label, version in policy.versions.items() if policy.statuses.get(label, version.status) != RETIRED
    ]


def repository_index(
    snapshot: PolicySnapshot | None, permitted: frozenset[str] | None, *, ready_only: bool
) -> list[Indexed]:
    """Return the versions that a caller may know, and whether they have servers; at most :data:`MAX_INDEXED`.

    Args:
        snapshot: The policies of this moment.
        permitted: The models that the caller may read; ``None``: all of them.
        ready_only: Whether those without servers are left out.

    Raises:
        PolicyNotLoaded: There are no policies yet.
    """
    versions = readable_versions(snapshot, permitted)
    return list(islice(_indexed(versions, ready_only=ready_only), MAX_INDEXED))


def readable_versions(snapshot: PolicySnapshot | None, permitted: frozenset[str] | None) -> Iterator[ModelVersion]:
    """Return the versions that are not retired, of the models that a caller may read; ``None``: of all.

    Raises:
        PolicyNotLoaded: There are no policies yet.
    """
    if snapshot is None:
        raise PolicyNotLoaded
    policies = [one for name, one in snapshot.policies.items() if permitted is None or name in permitted]
    return (policy.versions[label] for policy in policies for label in not_retired(policy))


def _indexed(versions: Iterable[ModelVersion], *, ready_only: bool) -> Iterable[Indexed]:
    for version in versions:
        if version.endpoints:
            yield Indexed(version.model_name, version.version, "READY", "")
        elif not ready_only:
            yield Indexed(version.model_name, version.version, "UNAVAILABLE", "no model server serves it")
