"""Gauges of wanted versions: what servers do not have yet, and how many replicas calls need."""

from collections import Counter
from collections.abc import Collection, Mapping

from understudy.core.loading.wanted import missing_servers
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.telemetry.telemetry import Telemetry

MISSING = "version_servers_missing"
REPLICAS = "version_replicas"
WANTED, AVAILABLE = "wanted", "available"


class PlacementGauges:
    """Sets the gauges of each reading in ``telemetry``, and takes those back that it says nothing of any more."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._set: set[tuple[str, ...]] = set()
        """Names and labels of the gauges that are there."""

    def tell(self, facts: LoadingFacts, counts: Mapping[int, int]) -> None:
        """Set them.

        Args:
            facts: What was read.
            counts: How many replicas each version is to have whose calls decide that, by its id.
        """
        found = {**_missing(facts), **_replicas(facts, counts)}
        self._forget(self._set - found.keys())
        for (name, *labels), value in found.items():
            self._telemetry.set(name, value, *labels)
        self._set = set(found)

    def _forget(self, gauges: Collection[tuple[str, ...]]) -> None:
        for name, *labels in gauges:
            self._telemetry.forget(name, *labels)


def _missing(facts: LoadingFacts) -> Mapping[tuple[str, ...], int]:
    """Return the gauge of each version that a server is still to have."""
    placed = facts.placed.keys() - facts.idle.keys()
    missing = missing_servers(facts.versions, facts.servers, facts.available, facts.without_room, placed)
    return {(MISSING, *facts.names[version_id]): count for version_id, count in missing.items()}


def _replicas(facts: LoadingFacts, counts: Mapping[int, int]) -> Mapping[tuple[str, ...], int]:
    """Return the gauges of versions that may be on more or fewer servers: an autoscaler reads what they need."""
    has = Counter(version_id for version_id, _ in facts.available)
    gauges: dict[tuple[str, ...], int] = {}
    for version_id, count in counts.items():
        labels = facts.names[version_id]
        gauges[REPLICAS, *labels, WANTED] = count
        gauges[REPLICAS, *labels, AVAILABLE] = has[version_id]
    return gauges
