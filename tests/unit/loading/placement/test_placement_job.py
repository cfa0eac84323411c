"""What the leading monitor writes: differences alone."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.loading.idle import Idle
from understudy.core.loading.replicas import Replicas
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Place, Placements, Why
from understudy.loading.placement.placement_job import PlacementJob
from understudy.loading.placement.room_refusals import GIVING_WAY_SECONDS
from understudy.ports.loading.placement_store import LoadingFacts
from understudy.ports.monitoring.lease import Epoch

GAUGE = "version_servers_missing"
RESTORED = ("placements_restored_total",)


class Store:
    """A store that keeps what it is told, and the writes."""

    def __init__(self, *versions: ManagedVersion) -> None:
        servers = [GroupMember("s1", "onnx"), GroupMember("s2", "onnx")]
        names = {version.version_id: ("visits", str(version.version_id)) for version in versions}
        self.facts = LoadingFacts(versions, servers, {}, set(), names)
        self.writes: list[tuple[Placements, Collection[Place], Epoch]] = []
        self.rested: list[Collection[Place]] = []
        self.dropped = 0

    async def read(self) -> LoadingFacts:
        return self.facts

    async def decide(
        self, wanted: Placements, gone: Collection[Place], epoch: Epoch, *, idle: Collection[Place] = ()
    ) -> None:
        self.writes.append((wanted, gone, epoch))
        self.rested.append(idle)
        placed = {place: why for place, why in {**self.facts.placed, **wanted}.items() if place not in gone}
        self.facts = self.facts._replace(placed=placed)

    async def drop_silent_servers(self, epoch: Epoch) -> list[str]:
        self.dropped += 1
        return []

    async def close(self) -> None: ...


def a_version(version_id: int, *reasons: Why) -> ManagedVersion:
    return ManagedVersion(version_id, "onnx", frozenset(reasons))


async def test_a_decision_is_written_once():
    store = Store(a_version(1, Why.CHAMPION), a_version(2))
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0)

    for _ in range(3):
        await job.tick(4)

    assert store.writes == [({(1, "s1"): Why.CHAMPION, (1, "s2"): Why.CHAMPION}, [], 4)]


async def test_another_reason_and_a_version_that_is_wanted_no_more_are_written():
    store = Store(a_version(1, Why.CHAMPION), a_version(2, Why.CHALLENGER))
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0)
    await job.tick(4)

    store.facts = store.facts._replace(versions=[a_version(1), a_version(2, Why.CHAMPION)])
    await job.tick(4)

    assert store.writes[1:] == [({(2, "s1"): Why.CHAMPION, (2, "s2"): Why.CHAMPION}, [(1, "s1"), (1, "s2")], 4)]


async def test_what_another_session_deleted_is_written_again_and_counted():
    store, telemetry = Store(a_version(1, Why.CHAMPION), a_version(2, Why.CHALLENGER)), MemoryTelemetry()
    job = PlacementJob(store, telemetry, now=lambda: 0.0)
    for _ in range(2):
        await job.tick(4)
    assert telemetry.counts[RESTORED] == 0

    store.facts = store.facts._replace(placed={(1, "s1"): Why.CHAMPION})
    await job.tick(4)
    counted = telemetry.counts[RESTORED]
    await job.tick(4)

    assert (counted, telemetry.counts[RESTORED]) == (3, 3)
    assert store.facts.placed.keys() == {(1, "s1"), (1, "s2"), (2, "s1"), (2, "s2")}


async def test_what_the_leader_ends_itself_what_is_wanted_no_more_and_what_another_leader_decided_is_not_counted():
    store, telemetry = Store(a_version(1, Why.CHAMPION), a_version(2, Why.CHALLENGER)), MemoryTelemetry()
    job = PlacementJob(store, telemetry, now=lambda: 0.0)
    await job.tick(4)

    store.facts = store.facts._replace(versions=[a_version(1, Why.CHAMPION), a_version(2)])
    await job.tick(4)  # it ends 2 itself
    store.facts = store.facts._replace(versions=[a_version(1, Why.CHAMPION), a_version(2, Why.CHALLENGER)])
    await job.tick(4)
    store.facts = store.facts._replace(versions=[a_version(1, Why.CHAMPION)], placed={(1, "s1"): Why.CHAMPION})
    store.facts = store.facts._replace(servers=store.facts.servers[:1])
    await job.tick(4)  # 2 was deleted, and so was the server s2
    store.facts = store.facts._replace(placed={})
    await job.tick(5)  # another monitor has led meanwhile

    assert telemetry.counts[RESTORED] == 0
    assert store.facts.placed == {(1, "s1"): Why.CHAMPION}


async def test_a_version_that_was_moved_keeps_its_servers_until_one_of_the_new_group_has_it():
    store = Store(a_version(1, Why.CHAMPION))
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0)
    await job.tick(4)
    moved = ManagedVersion(1, "other", frozenset({Why.CHAMPION}))

    store.facts = store.facts._replace(versions=[moved], servers=[*store.facts.servers, GroupMember("s3", "other")])
    await job.tick(4)
    store.facts = store.facts._replace(available={(1, "s3")})
    await job.tick(4)

    assert store.writes[1:] == [({(1, "s3"): Why.CHAMPION}, [], 4), ({}, [(1, "s1"), (1, "s2")], 4)]


async def test_a_version_that_a_server_is_still_to_have_has_a_gauge_until_all_have_it():
    store, telemetry = Store(a_version(1, Why.CHAMPION), a_version(2, Why.ASKED), a_version(3)), MemoryTelemetry()
    job = PlacementJob(store, telemetry, now=lambda: 0.0)

    await job.tick(4)
    assert telemetry.gauges == {(GAUGE, "visits", "1"): 2, (GAUGE, "visits", "2"): 2}
    store.facts = store.facts._replace(available={(1, "s1"), (1, "s2"), (2, "s1")})
    await job.tick(4)

    assert telemetry.gauges == {(GAUGE, "visits", "2"): 1}


async def test_a_version_that_nothing_wants_any_more_rests_where_it_is_loaded_until_its_time_is_over_or_it_is_wanted():
    store = Store(a_version(1, Why.CHALLENGER))
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0, idle_seconds=60.0)
    await job.tick(4)
    rests = ManagedVersion(1, "onnx", frozenset(), may_idle=True)

    store.facts = store.facts._replace(versions=[rests], available={(1, "s1")})
    await job.tick(4)  # at s2 it is still being loaded
    store.facts = store.facts._replace(idle={(1, "s1"): Idle(30.0, 30.0)})
    await job.tick(4)
    store.facts = store.facts._replace(idle={(1, "s1"): Idle(90.0, 1.0)})
    await job.tick(4)  # it was called
    store.facts = store.facts._replace(versions=[a_version(1, Why.CHALLENGER)])
    await job.tick(4)  # with the same reason as before
    store.facts = store.facts._replace(versions=[rests], idle={(1, "s1"): Idle(61.0, 61.0)})
    await job.tick(4)

    wanted = {(1, "s1"): Why.CHALLENGER, (1, "s2"): Why.CHALLENGER}
    assert store.writes[1:] == [({}, [(1, "s2")], 4), ({}, [], 4), (wanted, [], 4), ({}, [(1, "s1"), (1, "s2")], 4)]
    assert store.rested[1:3] == [{(1, "s1")}, {(1, "s1")}]


@pytest.mark.parametrize(
    ("readings", "drops"),
    [
        ([(0, 0), (5, 5)], 0),
        ([(second, second) for second in range(0, 61, 5)], 1),
        # Postgres was away for a minute and a half.
        ([*((second, second) for second in range(0, 61, 5)), (150, 150)], 0),
        # Its clock was set forward by an hour, and back.
        ([*((second, second) for second in range(0, 61, 5)), (65, 3_665)], 0),
        ([*((second, second) for second in range(0, 61, 5)), (65, 5)], 0),
        ([*((second, second) for second in range(0, 61, 5)), *((at, at + 3_600) for at in range(65, 131, 5))], 1),
    ],
    ids=["too short", "a minute", "away", "clock set forward", "clock set back", "a minute after the clock was set"],
)
async def test_a_silence_counts_that_was_watched_for_a_minute(readings, drops):
    clock = [0.0]
    store = Store(a_version(1, Why.CHAMPION))
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: clock[0])
    for now, read_at in readings:
        clock[0] = float(now)
        store.facts = store.facts._replace(read_at=float(read_at))
        await job.tick(4)

    await job.drop_silent_servers(4)

    assert store.dropped == drops


@pytest.mark.parametrize(("idle_seconds", "writes"), [(60.0, 1), (0.0, 0)])
async def test_a_version_that_a_caller_named_is_loaded_where_versions_stay_loaded_for_a_while(idle_seconds, writes):
    called = ManagedVersion(1, "onnx", frozenset(), may_idle=True, is_called=True)
    store = Store(called)
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0, idle_seconds=idle_seconds)

    await job.tick(4)

    assert store.writes == [({(1, "s1"): Why.ASKED, (1, "s2"): Why.ASKED}, [], 4)] * writes


async def test_a_version_that_is_idle_stays_so_while_its_agent_is_silent():
    store = Store(ManagedVersion(1, "onnx", frozenset(), may_idle=True))
    store.facts = store.facts._replace(placed={(1, "s1"): Why.ASKED}, idle={(1, "s1"): Idle(5.0, 5.0)})
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0, idle_seconds=60.0)

    await job.tick(4)

    assert store.writes == []


def on_one(version_id: int, *reasons: Why) -> ManagedVersion:
    return ManagedVersion(version_id, "onnx", frozenset(reasons), model_name="visits", replicas=Replicas(1, 1))


async def test_a_version_for_one_server_is_placed_on_one_and_stays_there_where_the_decision_was_deleted():
    store, telemetry = Store(on_one(1, Why.CHAMPION)), MemoryTelemetry()
    job = PlacementJob(store, telemetry, now=lambda: 0.0)
    await job.tick(4)
    ((place, why),) = store.facts.placed.items()
    store.facts = store.facts._replace(available={place})
    gauges = dict(telemetry.gauges)
    await job.tick(4)

    store.facts = store.facts._replace(placed={})
    await job.tick(4)

    assert (gauges, why) == ({(GAUGE, "visits", "1"): 1}, Why.CHAMPION)
    assert telemetry.gauges == {}
    assert store.writes == [({place: why}, [], 4)] * 2
    assert telemetry.counts[RESTORED] == 1


async def test_a_copy_that_is_one_too_many_goes_at_once_and_does_not_rest():
    everywhere = replace(a_version(1, Why.CHAMPION), may_idle=True)
    store = Store(everywhere)
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: 0.0, idle_seconds=60.0)
    await job.tick(4)

    one = replace(everywhere, replicas=Replicas(1, 1))
    store.facts = store.facts._replace(versions=[one], available=set(store.facts.placed))
    await job.tick(4)

    assert [len(gone) for _, gone, _ in store.writes] == [0, 1]
    assert store.rested[-1] == set()


class Leader:
    """A job that reads each second of its clock; ``gap`` lets time pass in which it could not."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0.0
        self.job = PlacementJob(store, MemoryTelemetry(), now=lambda: self.now)

    async def run_until(self, end: float) -> None:
        while self.now < end:
            self.now += 1.0
            self.store.facts = self.store.facts._replace(read_at=self.now)
            await self.job.tick(4)

    def gap(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("change", "seconds"), [({"is_live": False}, 30.0), ({"answers": False}, 60.0)], ids=["silent", "away"]
)
async def test_the_versions_of_a_lost_server_are_placed_on_another_one_after_a_minute(change, seconds):
    store = Store(on_one(1, Why.CHAMPION))
    leader = Leader(store)
    await leader.run_until(100.0)
    (place,) = store.facts.placed

    unwell = [replace(one, **change) if one.name == place[1] else one for one in store.facts.servers]
    store.facts = store.facts._replace(servers=unwell)
    await leader.run_until(100.0 + seconds)  # it is first seen a second after the change
    blip = set(store.facts.placed)
    await leader.run_until(101.0 + seconds)
    both = set(store.facts.placed)
    store.facts = store.facts._replace(available=both - {place})
    await leader.run_until(102.0 + seconds)

    assert blip == {place}
    assert both == {(1, "s1"), (1, "s2")}
    assert store.facts.placed.keys() == both - {place}


async def test_while_postgres_was_away_no_server_is_lost_and_the_first_that_reports_gets_nothing_of_the_others():
    store = Store(on_one(1, Why.CHAMPION))
    leader = Leader(store)
    await leader.run_until(100.0)
    placed, servers = dict(store.facts.placed), store.facts.servers
    ((_, name),) = placed

    store.facts = store.facts._replace(servers=[replace(one, is_live=False) for one in servers])
    await leader.run_until(101.0)
    leader.gap(600.0)
    store.facts = store.facts._replace(servers=[replace(one, is_live=one.name != name) for one in servers])
    await leader.run_until(740.0)

    assert store.facts.placed == placed


async def test_a_version_with_a_range_has_gauges_of_what_its_calls_need_and_of_what_is_available():
    ranged = replace(on_one(1, Why.CHAMPION), replicas=Replicas(1, 4))
    store, telemetry, replicas = Store(ranged), MemoryTelemetry(), {1: 2}
    job = PlacementJob(store, telemetry, now=lambda: 0.0, count=lambda *_: dict(replicas))
    store.facts = store.facts._replace(available={(1, "s1")})

    await job.tick(4)
    placed, found = set(store.facts.placed), {labels[1:]: n for labels, n in telemetry.gauges.items() if labels[3:]}
    replicas.clear()
    await job.tick(4)

    assert placed == {(1, "s1"), (1, "s2")}
    assert found == {("visits", "1", "wanted"): 2, ("visits", "1", "available"): 1}
    assert not any(labels[0] == "version_replicas" for labels in telemetry.gauges)


async def test_a_server_that_had_no_room_is_another_servers_turn_unless_idle_versions_make_some():
    store = Store(on_one(1, Why.CHAMPION), ManagedVersion(2, "onnx", frozenset(), may_idle=True))
    clock = [0.0]
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: clock[0], idle_seconds=86_400.0)
    await job.tick(4)
    ((_, name),) = store.facts.placed
    placed, resting = {**store.facts.placed, (2, name): Why.ASKED}, {(2, name): Idle(5.0, 5.0)}
    store.facts = store.facts._replace(placed=placed, idle=resting, available={(2, name)}, without_room={(1, name)})
    await job.tick(4)
    waits = set(store.facts.placed)

    store.facts = store.facts._replace(available=set())  # it is unloaded for the other one, which may need more
    clock[0] = GIVING_WAY_SECONDS
    await job.tick(4)
    waits_on = set(store.facts.placed)
    clock[0] += 1.0
    await job.tick(4)

    assert waits == waits_on == {(1, name), (2, name)}
    assert store.facts.placed.keys() - resting == {(1, name)} ^ {(1, "s1"), (1, "s2")}


async def test_servers_that_refuse_though_their_rows_have_room_do_not_take_turns_at_once():
    store, clock = Store(on_one(1, Why.CHAMPION)), [0.0]
    store.facts = store.facts._replace(servers=[replace(one, room_bytes=600) for one in store.facts.servers])
    job = PlacementJob(store, MemoryTelemetry(), now=lambda: clock[0])

    for second in range(600):
        clock[0] = float(second)
        await job.tick(4)
        # Both have versions whose size no row has, so each agent refuses within a second what it is given.
        refused = set(store.facts.placed)
        store.facts = store.facts._replace(without_room=refused, sizes=dict.fromkeys(refused, 300))

    first, other, again = [[name for _, name in wanted] for wanted, _, _ in store.writes]
    assert first != other
    assert first == again
    assert len(store.facts.placed) == 1
