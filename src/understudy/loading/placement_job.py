"""Decides which server has which version: the leading monitor compares what is wanted with what it decided before."""

from understudy.core.loading.wanted import wanted_placements
from understudy.ports.loading.placement_store import PlacementStore
from understudy.ports.monitoring.lease import Epoch


class PlacementJob:
    """Jobs of the leading monitor, over the decisions in ``store``."""

    def __init__(self, store: PlacementStore) -> None:
        self._store = store

    async def tick(self, epoch: Epoch) -> None:
        """Write what has changed since the last decision; usually that is nothing."""
        facts = await self._store.read()
        wanted = wanted_placements(facts.versions, facts.servers, facts.placed.keys(), facts.available)
        changed = {place: why for place, why in wanted.items() if facts.placed.get(place) is not why}
        gone = [place for place in facts.placed if place not in wanted]
        if changed or gone:
            await self._store.decide(changed, gone, epoch)

    async def drop_silent_servers(self, epoch: Epoch) -> None:
        """Have proxies call no server whose agent is silent, where another one serves the version."""
        await self._store.drop_silent_servers(epoch)
