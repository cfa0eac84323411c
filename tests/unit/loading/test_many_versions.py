"""Ten thousand versions in two hundred groups: what a decision costs, and what it moves (ADR 185)."""

import time
import tracemalloc
from collections.abc import Collection
from dataclasses import replace

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place, Placements, Why
from understudy.loading.placement.placement_job import PlacementJob
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.monitoring.lease import Epoch

VERSIONS, GROUPS = 10_000, 200
EACH = VERSIONS // GROUPS
REASONS = tuple(Why)


class Fleet:
    """A store of a fleet whose agents do at once what is decided."""

    def __init__(self, servers_each: int = 1) -> None:
        versions = [
            ManagedVersion(number, f"group-{number % GROUPS}", frozenset({REASONS[number % len(REASONS)]}))
            for number in range(VERSIONS)
        ]
        servers = [
            GroupMember(f"server-{group}-{one}", f"group-{group}")
            for group in range(GROUPS)
            for one in range(servers_each)
        ]
        names = {version.version_id: (f"model-{version.version_id}", "1") for version in versions}
        self.facts = LoadingFacts(versions, servers, {}, set(), names)
        self.moves: list[int] = []

    async def read(self) -> LoadingFacts:
        return self.facts

    async def decide(
        self, wanted: Placements, gone: Collection[Place], epoch: Epoch, *, idle: Collection[Place] = ()
    ) -> None:
        self.moves.append(len(wanted) + len(gone))
        placed = {place: why for place, why in {**self.facts.placed, **wanted}.items() if place not in gone}
        self.facts = self.facts._replace(placed=placed, available=set(placed))

    def lose(self, name: str) -> None:
        """Have a server forgotten, and with it what was placed there."""
        servers = [server for server in self.facts.servers if server.name != name]
        placed = {place: why for place, why in self.facts.placed.items() if place[1] != name}
        self.facts = self.facts._replace(servers=servers, placed=placed, available=set(placed))

    async def drop_silent_servers(self, epoch: Epoch) -> list[str]:
        return []

    async def close(self) -> None: ...


def a_job(fleet: Fleet) -> PlacementJob:
    return PlacementJob(fleet, MemoryTelemetry(), now=lambda: 0.0, idle_seconds=1_800)


async def test_ten_thousand_versions_on_two_hundred_servers_are_decided_in_half_a_second():
    fleet = Fleet()
    job = a_job(fleet)

    began = time.process_time()
    await job.tick(4)
    first = time.process_time() - began
    began = time.process_time()
    await job.tick(4)
    again = time.process_time() - began
    another = Fleet()
    tracemalloc.start()
    await a_job(another).tick(4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert fleet.moves == [VERSIONS]
    assert max(first, again) < 0.5, (first, again)
    assert peak < 150 * 2**20, peak


async def test_what_is_unchanged_is_never_moved_whatever_its_servers_do_for_a_moment():
    """Load is no input of the decision, and neither is a silence: what moves a version is a person or a policy."""
    fleet = Fleet(servers_each=2)
    job = a_job(fleet)
    await job.tick(4)

    for silent in range(20):
        servers = [replace(server, is_live=number != silent) for number, server in enumerate(fleet.facts.servers)]
        fleet.facts = fleet.facts._replace(servers=servers)
        await job.tick(4)

    assert fleet.moves == [2 * VERSIONS]


async def test_a_lost_server_of_two_moves_nothing_and_its_successor_gets_its_versions_in_one_tick():
    fleet = Fleet(servers_each=2)
    job = a_job(fleet)
    await job.tick(4)

    fleet.lose("server-7-0")
    await job.tick(4)
    after_the_loss = list(fleet.moves)
    fleet.facts = fleet.facts._replace(servers=[*fleet.facts.servers, GroupMember("server-7-2", "group-7")])
    await job.tick(4)
    await job.tick(4)

    assert after_the_loss == [2 * VERSIONS]
    assert fleet.moves[1:] == [EACH]
    assert {place for place in fleet.facts.placed if place[1] == "server-7-2"} == {
        (version_id, "server-7-2") for version_id in range(7, VERSIONS, GROUPS)
    }
