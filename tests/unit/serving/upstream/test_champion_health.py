import asyncio
import time
from collections.abc import Callable

import numpy as np
from builders import a_policy, a_version
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.backend import MemoryBackend
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.routing.policy import ModelVersion, PolicySnapshot
from understudy.core.schema.tensors import Datatype, Tensor
from understudy.errors import BackendUnavailable
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.champion_health import (
    MEMORY_SECONDS,
    MISSING_SECONDS,
    SEARCH_CONCURRENCY,
    SEARCH_SECONDS,
    ChampionGauges,
    ChampionHealth,
    ChampionWatch,
)

MODELS = [f"model-{n:02}" for n in range(20)]
SNAPSHOT = PolicySnapshot({name: a_policy(model_name=name, champion=a_version("1", name)) for name in MODELS})


class Servers:
    """Model servers of which only ``alive`` say that they serve; counts how often each is asked.

    Others say that they do not or, when they are silent, say nothing until the probe times out. All answer calls.
    """

    def __init__(
        self,
        alive: set[str],
        broken: frozenset[str] = frozenset(),
        *,
        is_silent: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.alive, self.broken, self.is_silent, self._now = alive, broken, is_silent, now
        self.asked: list[str] = []

    def __call__(self, version: ModelVersion) -> BatchingCaller:
        if version.model_name in self.broken:
            raise BackendUnavailable("its token is not set")
        backend = Watched(version.model_name, self)
        return BatchingCaller(version, backend, concurrency=1, gap_seconds=0, batch_rows=1, queue_rows=1, now=self._now)


class Watched(MemoryBackend):
    def __init__(self, name: str, servers: Servers) -> None:
        super().__init__(lambda rows: Tensor(Datatype.FP32, (len(rows), 1), np.zeros(len(rows), "<f4")))
        self.name, self.servers = name, servers

    async def ready(self, timeout_seconds: float) -> bool:
        self.servers.asked.append(self.name)
        if self.servers.is_silent and self.name not in self.servers.alive:
            await asyncio.sleep(timeout_seconds)
        return self.name in self.servers.alive


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


async def test_one_champion_among_many_is_enough_wherever_it_stands_in_the_list():
    for alive in ("model-00", "model-08", "model-19"):
        watch = ChampionWatch(BackendPool(Servers({alive})), Clock())

        assert (await watch.check(SNAPSHOT)).is_reachable


async def test_those_that_were_left_over_when_one_answered_are_not_all_that_are_asked_next():
    servers, clock = Servers({"model-08"}), Clock()
    watch = ChampionWatch(BackendPool(servers), clock)
    assert (await watch.check(SNAPSHOT)).is_reachable

    for alive in MODELS:
        servers.alive = {alive}
        clock.seconds += MEMORY_SECONDS
        assert (await watch.check(SNAPSHOT)).is_reachable, alive
    servers.alive = {"another"}
    clock.seconds += MEMORY_SECONDS
    others = PolicySnapshot({"another": a_policy(model_name="another", champion=a_version("1", "another"))})
    assert (await watch.check(others)).is_reachable


async def test_none_is_none():
    assert await ChampionWatch(BackendPool(Servers(set())), Clock()).check(SNAPSHOT) == (False, len(MODELS))


async def test_a_champion_that_cannot_even_be_connected_does_not_hide_the_others():
    servers = Servers({"model-01"}, broken=frozenset({"model-00"}))

    assert (await ChampionWatch(BackendPool(servers), Clock()).check(SNAPSHOT)).is_reachable


async def test_the_answer_is_remembered_and_the_last_one_that_answered_is_asked_first_and_alone():
    servers, clock = Servers({"model-19"}), Clock()
    watch = ChampionWatch(BackendPool(servers), clock)
    await watch.check(SNAPSHOT)
    asked_at_first = len(servers.asked)

    assert (await watch.check(SNAPSHOT)).is_reachable
    assert len(servers.asked) == asked_at_first
    clock.seconds += MEMORY_SECONDS
    assert (await watch.check(SNAPSHOT)).is_reachable

    assert servers.asked[asked_at_first:] == ["model-19"]


async def test_that_none_answered_is_remembered_for_a_shorter_time():
    servers, clock = Servers(set()), Clock()
    watch = ChampionWatch(BackendPool(servers), clock)
    assert not (await watch.check(SNAPSHOT)).is_reachable
    servers.alive.add("model-00")

    assert not (await watch.check(SNAPSHOT)).is_reachable
    clock.seconds += MISSING_SECONDS
    assert (await watch.check(SNAPSHOT)).is_reachable


async def test_without_models_there_is_nothing_to_miss():
    assert (await ChampionWatch(BackendPool(Servers(set())), Clock()).check(PolicySnapshot())).is_reachable


def test_of_hundreds_that_are_silent_each_has_its_turn_while_every_look_ends_in_time():
    names = [f"model-{n:03}" for n in range(400)]
    snapshot = PolicySnapshot({name: a_policy(model_name=name, champion=a_version("1", name)) for name in names})
    servers = Servers({"model-399"}, is_silent=True)

    async def scenario() -> list[tuple[float, ChampionHealth]]:
        clock = asyncio.get_running_loop().time
        watch = ChampionWatch(BackendPool(servers), clock)
        looks: list[tuple[float, ChampionHealth]] = []
        while not looks or not looks[-1][1].is_reachable:
            began = clock()
            found = await watch.check(snapshot)
            looks.append((clock() - began, found))
            await asyncio.sleep(MISSING_SECONDS)
        return looks

    looks = run_in_virtual_time(scenario())

    assert max(seconds for seconds, _ in looks) <= SEARCH_SECONDS + 0.001
    asked = [found.asked for _, found in looks[:-1]]
    assert asked == sorted(asked)
    assert 0 < asked[0] < asked[-1] < len(names)
    assert set(servers.asked) == set(names)
    assert len(looks) <= len(names) / SEARCH_CONCURRENCY + 1


def test_a_search_that_was_cut_short_takes_nobodys_turn():
    servers = Servers(set(), is_silent=True)

    async def scenario() -> ChampionHealth:
        clock = asyncio.get_running_loop().time
        watch = ChampionWatch(BackendPool(servers), clock)
        for _ in range(10):
            found = await watch.check(SNAPSHOT)
            await asyncio.sleep(MISSING_SECONDS)
        return found

    assert run_in_virtual_time(scenario()) == (False, len(MODELS))


async def test_a_champion_whose_model_server_answered_a_call_of_late_is_not_asked():
    clock = Clock()
    servers = Servers({"model-07"}, now=clock)
    backends = BackendPool(servers)
    watch = ChampionWatch(backends, clock)
    await backends.of(SNAPSHOT.policies["model-07"].champion).call((b"",), clock() + 5)

    assert (await watch.check(SNAPSHOT)).is_reachable
    assert servers.asked == []
    clock.seconds += MEMORY_SECONDS
    assert (await watch.check(SNAPSHOT)).is_reachable
    assert "model-07" in servers.asked


async def test_that_a_version_answered_which_is_no_champion_any_more_says_nothing():
    clock = Clock()
    servers = Servers(set(), now=clock)
    backends = BackendPool(servers)
    await backends.of(a_version("2", "model-07")).call((b"",), clock() + 5)

    assert not (await ChampionWatch(backends, clock).check(SNAPSHOT)).is_reachable


async def test_each_champion_that_was_called_has_a_gauge_that_follows_its_model_server():
    servers, telemetry = Servers({"model-00", "model-01"}), MemoryTelemetry()
    backends = BackendPool(servers)
    for name in ("model-00", "model-01", "model-02"):
        backends.of(SNAPSHOT.policies[name].champion)
    gauges = ChampionGauges(backends, lambda: SNAPSHOT, telemetry)

    await gauges.refresh()
    before = dict(telemetry.gauges)
    servers.alive = {"model-02"}
    await gauges.refresh()

    assert before == {
        ("champion_unreachable", "model-00"): 0.0,
        ("champion_unreachable", "model-01"): 0.0,
        ("champion_unreachable", "model-02"): 1.0,
    }
    assert telemetry.gauges["champion_unreachable", "model-01"] == 1.0
    assert telemetry.gauges["champion_unreachable", "model-02"] == 0.0


async def test_a_champion_that_is_none_any_more_loses_its_gauge_and_before_the_first_policy_there_is_none():
    backends, telemetry = BackendPool(Servers(set(MODELS))), MemoryTelemetry()
    backends.of(SNAPSHOT.policies["model-00"].champion)
    seen: list[PolicySnapshot | None] = [None]
    gauges = ChampionGauges(backends, lambda: seen[0], telemetry)

    await gauges.refresh()
    nothing = dict(telemetry.gauges)
    seen[0] = SNAPSHOT
    await gauges.refresh()
    shown = dict(telemetry.gauges)
    seen[0] = PolicySnapshot({"model-00": a_policy(model_name="model-00", champion=a_version("2", "model-00"))})
    await gauges.refresh()

    assert (nothing, shown) == ({}, {("champion_unreachable", "model-00"): 0.0})
    assert telemetry.gauges == {}
