from collections.abc import Sequence

from understudy.core.loading.replicas import Replicas
from understudy.core.loading.wanted import GroupMember, ManagedVersion, Why
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import WINDOW_SECONDS, Window, WindowKey
from understudy.loading.placement.replica_watch import LATE_SECONDS, ReplicaWatch
from understudy.ports.loading.placement_store import LoadingFacts

NOON = 1_800_000_000
VERSION = ManagedVersion(7, "onnx", frozenset({Why.CHAMPION}), model_name="visits", replicas=Replicas(1, 4))
FACTS = LoadingFacts([VERSION], [GroupMember("s1", "onnx")], {(7, "s1"): Why.CHAMPION}, set(), {}, read_at=NOON)


class Windows:
    """Windows of one version, by the seconds before the reading that they start at."""

    def __init__(self) -> None:
        self.windows: dict[int, Window] = {}
        self.asked: list[tuple[float, float]] = []

    def put(self, seconds_before: int, calls: int, *, of_seconds: float | None = 0.06, hits: int = 0) -> None:
        start = NOON - seconds_before
        key = WindowKey("proxy", 0, 7, Role.CHAMPION, 0, 1, start)
        latencies = Histogram() if of_seconds is None else Histogram.of([of_seconds * 1e6] * calls)
        self.windows[start] = Window(key, volume=calls + hits, cache_hits=hits, latencies=latencies)

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        assert list(version_ids) == [7]
        self.asked.append((since - NOON, until - NOON))
        return [window for start, window in self.windows.items() if since <= start < until]


class Clock:
    now = 0.0


async def counted(windows: Windows, facts: LoadingFacts = FACTS, version: ManagedVersion = VERSION) -> int:
    """Return what a new leader counts once it has read."""
    watch = ReplicaWatch(windows.of_versions, now=lambda: 0.0, concurrency=2)
    watch.counts([version], facts, 4)
    await watch.tick(4)
    return watch.counts([version], facts, 4)[7]


async def test_calls_of_the_last_half_minute_say_how_many_servers_are_needed_at_once():
    windows = Windows()
    for start in (45, 30):
        windows.put(start, 15 * 50)  # 50 calls a second of 60 ms keep 3 / 1.2 servers busy

    assert await counted(windows) == 3


async def test_answers_from_a_cache_ask_no_server():
    windows = Windows()
    for start in (45, 30):
        windows.put(start, 15, hits=15 * 50)

    assert await counted(windows) == 1


async def test_calls_that_no_server_answers_any_more_take_as_long_as_they_did():
    windows = Windows()
    windows.put(300, 15)
    for start in (45, 30):
        windows.put(start, 15 * 50, of_seconds=None)

    assert await counted(windows) == 3


async def test_before_anything_is_read_as_many_as_are_placed_are_wanted_and_none_of_what_has_no_range():
    watch = ReplicaWatch(Windows().of_versions, now=lambda: 0.0, concurrency=2)
    two = FACTS._replace(placed={(7, "s1"): Why.CHAMPION, (7, "s2"): Why.CHAMPION})
    fixed = ManagedVersion(8, "onnx", frozenset({Why.CHAMPION}), replicas=Replicas(2, 2))

    assert watch.counts([VERSION, fixed], two, 4) == {7: 2}


async def test_one_goes_after_a_quarter_of_an_hour_and_the_next_one_as_long_after_it():
    windows, clock = Windows(), Clock()
    watch = ReplicaWatch(windows.of_versions, now=lambda: clock.now, concurrency=2)
    three = FACTS._replace(placed={(7, f"s{number}"): Why.CHAMPION for number in range(3)})
    watch.counts([VERSION], three, 4)
    await watch.tick(4)

    first = watch.counts([VERSION], three, 4)
    again = watch.counts([VERSION], three, 4)
    clock.now = 900.0
    later = watch.counts([VERSION], three, 4)

    assert (first, again, later) == ({7: 2}, {7: 2}, {7: 1})


async def test_none_goes_while_a_rollout_is_open_or_a_copy_has_just_gone_under_the_leader_before():
    two = FACTS._replace(placed={(7, "s1"): Why.CHAMPION, (7, "s2"): Why.CHAMPION})
    rolled_out = ManagedVersion(7, "onnx", frozenset({Why.CHAMPION, Why.ROLLOUT}), replicas=VERSION.replicas)

    assert await counted(Windows(), two) == 1
    assert await counted(Windows(), two, rolled_out) == 2
    assert await counted(Windows(), two._replace(lately_removed={7})) == 2


async def test_a_quarter_of_an_hour_is_read_once_and_then_what_is_new():
    windows = Windows()
    watch = ReplicaWatch(windows.of_versions, now=lambda: 0.0, concurrency=2)
    watch.counts([VERSION], FACTS, 4)
    await watch.tick(4)
    windows.put(600, 15 * 50)  # of before: it is not read again
    windows.put(45, 15 * 50)
    await watch.tick(4)
    early = watch.counts([VERSION], FACTS, 4)
    windows.put(30, 15 * 50)
    await watch.tick(4)

    assert windows.asked == [(-960, 0), (-LATE_SECONDS, 0), (-LATE_SECONDS, 0)]
    assert (early, watch.counts([VERSION], FACTS, 4)) == ({7: 2}, {7: 3})
    assert WINDOW_SECONDS == 15
