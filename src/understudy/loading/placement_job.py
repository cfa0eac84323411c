"""Decides which server has which version: the leading monitor compares what is wanted with what it decided before."""

from understudy.core.loading.wanted import missing_servers, wanted_placements
from understudy.ports.loading.placement_store import LoadingFacts, PlacementStore
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.telemetry.telemetry import Telemetry


class PlacementJob:
    """Jobs of the leading monitor, over the decisions in ``store``; ``telemetry`` gets what is not loaded."""

    def __init__(self, store: PlacementStore, telemetry: Telemetry) -> None:
        self._store = store
        self._telemetry = telemetry
        self._told: set[tuple[str, str]] = set()
        """Models and versions that have a gauge."""

    async def tick(self, epoch: Epoch) -> None:
        """Write what has changed since the last decision; usually that is nothing."""
        facts = await self._store.read()
        self._tell(facts)
        wanted = wanted_placements(facts.versions, facts.servers, facts.placed.keys(), facts.available)
        changed = {place: why for place, why in wanted.items() if facts.placed.get(place) is not why}
        gone = [place for place in facts.placed if place not in wanted]
        if changed or gone:
            await self._store.decide(changed, gone, epoch)

    async def drop_silent_servers(self, epoch: Epoch) -> None:
        """Have proxies call no server whose agent is silent, where another one serves the version."""
        await self._store.drop_silent_servers(epoch)

    def _tell(self, facts: LoadingFacts) -> None:
        """Set the gauge of each version that a server is still to have; one that all have loses it."""
        missing = missing_servers(facts.versions, facts.servers, facts.available)
        found = {facts.names[version_id]: count for version_id, count in missing.items()}
        for labels in self._told - found.keys():
            self._telemetry.forget("version_servers_missing", *labels)
        for labels, count in found.items():
            self._telemetry.set("version_servers_missing", count, *labels)
        self._told = set(found)
