"""What the leading monitor writes: differences alone."""

from collections.abc import Collection

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Placements, Why
from understudy.loading.placement_job import PlacementJob
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.monitoring.lease import Epoch

GAUGE = "version_servers_missing"


class Store:
    """A store that keeps what it is told, and the writes."""

    def __init__(self, *versions: ManagedVersion) -> None:
        servers = [GroupMember("s1", "onnx"), GroupMember("s2", "onnx")]
        names = {version.version_id: ("visits", str(version.version_id)) for version in versions}
        self.facts = LoadingFacts(versions, servers, {}, set(), names)
        self.writes: list[tuple[Placements, Collection[tuple[int, str]], Epoch]] = []

    async def read(self) -> LoadingFacts:
        return self.facts

    async def decide(self, wanted: Placements, gone: Collection[tuple[int, str]], epoch: Epoch) -> None:
        self.writes.append((wanted, gone, epoch))
        placed = {place: why for place, why in {**self.facts.placed, **wanted}.items() if place not in gone}
        self.facts = self.facts._replace(placed=placed)

    async def drop_silent_servers(self, epoch: Epoch) -> None:
        raise NotImplementedError

    async def close(self) -> None: ...


def a_version(version_id: int, *reasons: Why) -> ManagedVersion:
    return ManagedVersion(version_id, "onnx", frozenset(reasons))


async def test_a_decision_is_written_once():
    store = Store(a_version(1, Why.CHAMPION), a_version(2))
    job = PlacementJob(store, MemoryTelemetry())

    for _ in range(3):
        await job.tick(4)

    assert store.writes == [({(1, "s1"): Why.CHAMPION, (1, "s2"): Why.CHAMPION}, [], 4)]


async def test_another_reason_and_a_version_that_is_wanted_no_more_are_written():
    store = Store(a_version(1, Why.CHAMPION), a_version(2, Why.CHALLENGER))
    job = PlacementJob(store, MemoryTelemetry())
    await job.tick(4)

    store.facts = store.facts._replace(versions=[a_version(1), a_version(2, Why.CHAMPION)])
    await job.tick(4)

    assert store.writes[1:] == [({(2, "s1"): Why.CHAMPION, (2, "s2"): Why.CHAMPION}, [(1, "s1"), (1, "s2")], 4)]


async def test_a_version_that_was_moved_keeps_its_servers_until_one_of_the_new_group_has_it():
    store = Store(a_version(1, Why.CHAMPION))
    job = PlacementJob(store, MemoryTelemetry())
    await job.tick(4)
    moved = ManagedVersion(1, "other", frozenset({Why.CHAMPION}))

    store.facts = store.facts._replace(versions=[moved], servers=[*store.facts.servers, GroupMember("s3", "other")])
    await job.tick(4)
    store.facts = store.facts._replace(available={(1, "s3")})
    await job.tick(4)

    assert store.writes[1:] == [({(1, "s3"): Why.CHAMPION}, [], 4), ({}, [(1, "s1"), (1, "s2")], 4)]


async def test_a_version_that_a_server_is_still_to_have_has_a_gauge_until_all_have_it():
    store, telemetry = Store(a_version(1, Why.CHAMPION), a_version(2, Why.ASKED), a_version(3)), MemoryTelemetry()
    job = PlacementJob(store, telemetry)

    await job.tick(4)
    assert telemetry.gauges == {(GAUGE, "visits", "1"): 2, (GAUGE, "visits", "2"): 2}
    store.facts = store.facts._replace(available={(1, "s1"), (1, "s2"), (2, "s1")})
    await job.tick(4)

    assert telemetry.gauges == {(GAUGE, "visits", "2"): 1}
