import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from builders import policy_rows

from understudy.adapters.memory_registry import MemoryPolicySource
from understudy.adapters.memory_telemetry import MemoryTelemetry
from understudy.adapters.snapshot_file import JsonSnapshotFile
from understudy.core.policy import PolicySnapshot
from understudy.ports import PolicyChange
from understudy.serving.policy_feed import PolicyFeed


class DeafSource(MemoryPolicySource):
    """A source whose notifications never arrive."""

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        await asyncio.Event().wait()


@asynccontextmanager
async def a_feed(source: MemoryPolicySource, folder: Path, poll_seconds: float = 10) -> AsyncIterator[PolicyFeed]:
    feed = PolicyFeed(
        source,
        JsonSnapshotFile(folder / "policy.json"),
        MemoryTelemetry(),
        instance="proxy-1",
        poll_seconds=poll_seconds,
        now=time.monotonic,
        on_swap=lambda _: None,
    )
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop()


def a_source(kind: type[MemoryPolicySource] = MemoryPolicySource) -> MemoryPolicySource:
    return kind({"models": {"visits": policy_rows()}, "keys": []})


async def until(condition: Callable[[], bool], seconds: float = 3) -> float:
    """Return how long it took, in seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it never came true"
        await asyncio.sleep(0.005)
    return time.monotonic() - started


def generation(snapshot: PolicySnapshot | None) -> int:
    return snapshot.policies["visits"].generation if snapshot and "visits" in snapshot.policies else 0


async def test_a_notified_change_is_what_requests_see_at_once(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        source.change_policy("visits", challenger_version=2, challenger_weight=5)

        assert await until(lambda: generation(feed.snapshot) == 2) < 0.1


async def test_a_change_whose_notification_is_lost_is_found_by_the_poll(tmp_path):
    source = a_source(DeafSource)
    async with a_feed(source, tmp_path, poll_seconds=0.1) as feed:
        source.change_policy("visits", challenger_version=2, challenger_weight=5)

        assert await until(lambda: generation(feed.snapshot) == 2) < 1


async def test_a_snapshot_is_swapped_whole_and_never_changed(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        before = feed.snapshot
        source.change_policy("visits", champion_version=2)
        await until(lambda: generation(feed.snapshot) == 2)

        assert before is not feed.snapshot
        assert generation(before) == 1


async def test_a_start_without_the_registry_serves_the_last_good_file(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path):
        await until((tmp_path / "policy.json").exists)
    source.available = False

    async with a_feed(source, tmp_path) as feed:
        assert generation(feed.snapshot) == 1
        assert feed.degraded
        assert feed.age_seconds is None

        source.available = True
        source.change_policy("visits", champion_version=2)
        await until(lambda: generation(feed.snapshot) == 2)
        assert not feed.degraded


async def test_a_start_without_registry_and_file_waits_and_then_serves(tmp_path):
    source = a_source()
    source.available = False
    async with a_feed(source, tmp_path) as feed:
        assert feed.snapshot is None

        source.available = True

        assert await until(lambda: generation(feed.snapshot) == 1) < 2


async def test_an_unreadable_file_is_as_none(tmp_path):
    for text in ("", "{", "[]", '{"models": 5}'):
        (tmp_path / "policy.json").write_text(text)
        source = a_source()
        source.available = False
        async with a_feed(source, tmp_path) as feed:
            assert feed.snapshot is None


async def test_the_registry_going_away_leaves_the_policy_in_force(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=0.05) as feed:
        source.available = False
        await until(lambda: feed.degraded)

        assert generation(feed.snapshot) == 1


async def test_each_instance_reports_the_generations_it_acts_on(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path):
        source.change_policy("visits", champion_version=2)

        await until(lambda: source.reported.get("proxy-1") == {"visits": 2})


async def test_a_model_that_lost_its_policy_is_no_longer_served(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        source.remove_model("visits")

        await until(lambda: feed.snapshot is not None and "visits" not in feed.snapshot.policies)
