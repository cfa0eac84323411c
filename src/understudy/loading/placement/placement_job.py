"""Decides which server has which version: the leading monitor compares what is wanted with what it decided before."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import structlog

from understudy.core.loading.idle import idle_places
from understudy.core.loading.placement import PlacementFacts, pack
from understudy.core.loading.wanted import ManagedVersion, Place, Placements, Why, wanted_placements
from understudy.loading.placement.lost_servers import LostServers
from understudy.loading.placement.placement_gauges import PlacementGauges
from understudy.loading.placement.room_refusals import RoomRefusals
from understudy.loading.placement.silence_watch import SilenceWatch
from understudy.ports.loading.placement_store import LoadingFacts, PlacementStore
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.telemetry.telemetry import Telemetry

_log = structlog.get_logger(__name__)

CountReplicas = Callable[[Sequence[ManagedVersion], LoadingFacts, Epoch], Mapping[int, int]]
"""Returns on how many servers each version is to be that may be on more or fewer."""


class PlacementJob:
    """Jobs of the leading monitor, over the decisions in ``store``; ``telemetry`` gets what is not loaded.

    It also gets how many decisions another session had deleted: an emptied table is written again within a second, and
    an operator is to hear of it all the same.

    A version that nothing wants stays loaded for ``idle_seconds`` after its last call; ``now`` is the monotonic clock,
    in seconds. Where versions may be on more or fewer servers, ``count`` says on how many (``ReplicaWatch``).
    """

    def __init__(
        self,
        store: PlacementStore,
        telemetry: Telemetry,
        *,
        now: Callable[[], float],
        idle_seconds: float = 0.0,
        count: CountReplicas | None = None,
    ) -> None:
        self._store = store
        self._telemetry = telemetry
        self._gauges = PlacementGauges(telemetry)
        self._count = count
        self._lost = LostServers(now)
        self._refusals = RoomRefusals(now)
        self._idle_seconds = idle_seconds
        self._watch = SilenceWatch(now)
        self._decided: tuple[Epoch | None, frozenset[Place]] = (None, frozenset())
        """What was placed after the last tick, in the term of which leader."""

    async def tick(self, epoch: Epoch) -> None:
        """Write what has changed since the last decision; usually that is nothing."""
        facts = await self._store.read()
        self._watch.note(facts.read_at)
        versions = [_with_callers(version) for version in facts.versions] if self._idle_seconds else facts.versions
        counts = {} if self._count is None else self._count(versions, facts, epoch)
        self._gauges.tell(facts, counts)
        wanted = {
            **wanted_placements(versions, facts.servers, facts.placed.keys(), facts.available),
            **self._packed(versions, facts, counts),
        }
        # An agent that is silent for a moment, as all are after Postgres was away, does not end what was idle before.
        known = {*facts.available, *facts.idle}
        unwanted = [place for place in facts.placed if place not in wanted and place in known]
        idle = idle_places(facts.versions, facts.servers, unwanted, facts.idle, limit_seconds=self._idle_seconds)
        changed = {
            place: why for place, why in wanted.items() if facts.placed.get(place) is not why or place in facts.idle
        }
        noted = {place for place in idle if place not in facts.idle or facts.idle[place].was_called}
        gone = [place for place in facts.placed if place not in wanted and place not in idle]
        if changed or gone or noted:
            await self._store.decide(changed, gone, epoch, idle=noted)
        self._count_deleted(facts.placed, wanted, epoch)
        self._decided = epoch, frozenset({*facts.placed, *changed}.difference(gone))

    async def drop_silent_servers(self, epoch: Epoch) -> None:
        """Have proxies call no server whose agent is silent, where another one serves the version."""
        if not self._watch.is_long_enough:
            return  # Postgres was away, or its clock was set: agents that are well have not reported since
        for server in await self._store.drop_silent_servers(epoch):
            _log.warning("monitor.silent_server_dropped", server=server)

    def _count_deleted(self, placed: Placements, wanted: Placements, epoch: Epoch) -> None:
        """Count what was decided in this term, was not there any more, and was wanted still: it is written again."""
        decided_in, decided = self._decided
        deleted = [place for place in decided - placed.keys() if place in wanted] if decided_in == epoch else []
        if deleted:
            self._telemetry.count("placements_restored_total", by=len(deleted))
            _log.warning("monitor.placements_restored", count=len(deleted), of=len(decided))

    def _packed(self, versions: Sequence[ManagedVersion], facts: LoadingFacts, counts: Mapping[int, int]) -> Placements:
        """Return where versions are to be that are on some servers of their group."""
        lost = self._lost.of(facts.servers)
        self._refusals.note(facts)
        if not self._watch.is_long_enough:
            lost = ()  # Postgres was away: the first agent to report again would be given what all others have
        why = {one.version_id: one.why for one in versions if one.replicas is not None and one.why is not None}
        if not why:
            return {}
        # What is available stays where it is, too, where another session has deleted the decisions.
        placed = {*facts.placed, *facts.available}
        refused, lately = self._refusals.standing(facts), self._refusals.lately
        known = PlacementFacts(placed, facts.available, refused, facts.sizes, lost, lately)
        found = pack(versions, facts.servers, known, counts)
        return {place: why[place[0]] for place in found.placed}


def _with_callers(version: ManagedVersion) -> ManagedVersion:
    """Return a version that is wanted for a caller, too; once it is available it is idle, since the last call to it."""
    return replace(version, reasons=version.reasons | {Why.ASKED}) if version.is_called else version
