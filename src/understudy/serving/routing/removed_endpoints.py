"""Whether calls of a proxy may still reach an endpoint that was taken back: an agent waits for the last of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from weakref import ref

from understudy.core.routing.policy import ModelVersion, PolicySnapshot

TOLD_SECONDS: Final = 60.0
"""How long a removal is told of beyond the time-out of its calls: an agent has read the report long before."""


class _Removal(NamedTuple):
    """A version as it was before it lost an endpoint."""

    version_id: int
    told_until: float
    version: ref[ModelVersion]
    """Each call that may reach the endpoint holds it: from the choice of its route until its answer is there."""


class RemovedEndpoints:
    """Counts, of versions that lost an endpoint, the older forms that calls still hold; ``now`` is the clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._removals: list[_Removal] = []

    def note(self, before: PolicySnapshot, after: PolicySnapshot, names: Iterable[str]) -> Iterator[None]:
        """Note what models have lost between two snapshots, one model at each step."""
        for name in names:
            yield
            left, here = (_versions_of(snapshot, name) for snapshot in (before, after))
            for label, version in left.items():
                kept = here[label].endpoints if label in here else ()
                if not set(version.endpoints) <= set(kept):
                    told_until = self._now() + version.timeout_seconds + TOLD_SECONDS
                    self._removals.append(_Removal(version.id, told_until, ref(version)))

    def calls(self) -> dict[int, int]:
        """Return by version id how many of its older forms calls hold; 0: none of its calls is left."""
        now = self._now()
        self._removals = [one for one in self._removals if one.told_until > now]
        found: dict[int, int] = {}
        for one in self._removals:
            found[one.version_id] = found.get(one.version_id, 0) + (one.version() is not None)
        return found


def _versions_of(snapshot: PolicySnapshot, model_name: str) -> Mapping[str, ModelVersion]:
    policy = snapshot.policies.get(model_name)
    return {} if policy is None else policy.versions
