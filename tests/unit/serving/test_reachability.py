import time

from builders import a_policy, a_version

from understudy.adapters.memory_backend import MemoryBackend
from understudy.adapters.memory_telemetry import MemoryTelemetry
from understudy.core.policy import ModelVersion, PolicySnapshot
from understudy.errors import BackendUnavailable
from understudy.serving.batching import BatchingCaller
from understudy.serving.callers import Callers
from understudy.serving.reachability import MEMORY_SECONDS, MISSING_SECONDS, ChampionGauges, ChampionWatch

MODELS = [f"model-{n:02}" for n in range(20)]
SNAPSHOT = PolicySnapshot({name: a_policy(model_name=name, champion=a_version("1", name)) for name in MODELS})


class Servers:
    """Model servers of which only ``alive`` answer; counts how often each is asked."""

    def __init__(self, alive: set[str], broken: frozenset[str] = frozenset()) -> None:
        self.alive, self.broken = alive, broken
        self.asked: list[str] = []

    def __call__(self, version: ModelVersion) -> BatchingCaller:
        if version.model_name in self.broken:
            raise BackendUnavailable("its token is not set")
        backend = Watched(version.model_name, self)
        return BatchingCaller(
            version, backend, concurrency=1, gap_seconds=0, batch_rows=1, queue_rows=1, now=time.monotonic
        )


class Watched(MemoryBackend):
    def __init__(self, name: str, servers: Servers) -> None:
        super().__init__(lambda rows: (_ for _ in ()).throw(AssertionError))
        self.name, self.servers = name, servers

    async def ready(self, timeout_seconds: float) -> bool:
        self.servers.asked.append(self.name)
        return self.name in self.servers.alive


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


async def test_one_champion_among_many_is_enough_wherever_it_stands_in_the_list():
    for alive in ("model-00", "model-08", "model-19"):
        watch = ChampionWatch(Callers(Servers({alive})), Clock())

        assert await watch.any_reachable(SNAPSHOT)


async def test_none_is_none():
    assert not await ChampionWatch(Callers(Servers(set())), Clock()).any_reachable(SNAPSHOT)


async def test_a_champion_that_cannot_even_be_connected_does_not_hide_the_others():
    servers = Servers({"model-01"}, broken=frozenset({"model-00"}))

    assert await ChampionWatch(Callers(servers), Clock()).any_reachable(SNAPSHOT)


async def test_the_answer_is_remembered_and_the_last_one_that_answered_is_asked_first():
    servers, clock = Servers({"model-19"}), Clock()
    watch = ChampionWatch(Callers(servers), clock)
    await watch.any_reachable(SNAPSHOT)
    asked_at_first = len(servers.asked)

    assert await watch.any_reachable(SNAPSHOT)
    assert len(servers.asked) == asked_at_first
    clock.seconds += MEMORY_SECONDS
    assert await watch.any_reachable(SNAPSHOT)

    assert servers.asked[asked_at_first] == "model-19"
    assert len(servers.asked) <= asked_at_first + 8


async def test_that_none_answered_is_remembered_for_a_shorter_time():
    servers, clock = Servers(set()), Clock()
    watch = ChampionWatch(Callers(servers), clock)
    assert not await watch.any_reachable(SNAPSHOT)
    servers.alive.add("model-00")

    assert not await watch.any_reachable(SNAPSHOT)
    clock.seconds += MISSING_SECONDS
    assert await watch.any_reachable(SNAPSHOT)


async def test_without_models_there_is_nothing_to_miss():
    assert await ChampionWatch(Callers(Servers(set())), Clock()).any_reachable(PolicySnapshot())


async def test_each_champion_that_was_called_has_a_gauge_that_follows_its_model_server():
    servers, telemetry = Servers({"model-00", "model-01"}), MemoryTelemetry()
    callers = Callers(servers)
    for name in ("model-00", "model-01", "model-02"):
        callers.of(SNAPSHOT.policies[name].champion)
    gauges = ChampionGauges(callers, lambda: SNAPSHOT, telemetry)

    await gauges.look()
    before = dict(telemetry.gauges)
    servers.alive = {"model-02"}
    await gauges.look()

    assert before == {
        ("champion_unreachable", "model-00"): 0.0,
        ("champion_unreachable", "model-01"): 0.0,
        ("champion_unreachable", "model-02"): 1.0,
    }
    assert telemetry.gauges["champion_unreachable", "model-01"] == 1.0
    assert telemetry.gauges["champion_unreachable", "model-02"] == 0.0


async def test_a_champion_that_is_none_any_more_loses_its_gauge_and_before_the_first_policy_there_is_none():
    callers, telemetry = Callers(Servers(set(MODELS))), MemoryTelemetry()
    callers.of(SNAPSHOT.policies["model-00"].champion)
    seen: list[PolicySnapshot | None] = [None]
    gauges = ChampionGauges(callers, lambda: seen[0], telemetry)

    await gauges.look()
    nothing = dict(telemetry.gauges)
    seen[0] = SNAPSHOT
    await gauges.look()
    shown = dict(telemetry.gauges)
    seen[0] = PolicySnapshot({"model-00": a_policy(model_name="model-00", champion=a_version("2", "model-00"))})
    await gauges.look()

    assert (nothing, shown) == ({}, {("champion_unreachable", "model-00"): 0.0})
    assert telemetry.gauges == {}
