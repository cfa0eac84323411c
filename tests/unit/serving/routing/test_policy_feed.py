import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest
from builders import a_version_row, policy_rows
from structlog.testing import capture_logs

from understudy.adapters.disk.snapshot_file import JsonSnapshotFile
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import PolicyDocument
from understudy.errors import RegistryUnavailable
from understudy.ports.registry.policy import PolicyChange
from understudy.serving.routing.instance_report import REPORT_SECONDS, SIGN_OFF_SECONDS
from understudy.serving.routing.policy_feed import PolicyFeed

SOON = 0.02


class DeafSource(MemoryPolicySource):
    """A source whose notifications never arrive."""

    async def listen(self, on_change: Callable[[PolicyChange], None]) -> None:
        await asyncio.Event().wait()


class FailsOnce(MemoryPolicySource):
    """A source with a defect: the second load fails with an error that the feed does not expect."""

    loads = 0

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        self.loads += 1
        if self.loads == 2:
            raise TypeError("a defect")
        return await super().load(model_names)


class SilentPolls(DeafSource):
    """A deaf source that is away for one poll, and counts them."""

    polls = 0

    async def changed_since_last_poll(self) -> Sequence[str]:
        self.polls += 1
        if self.polls == 1:
            raise RegistryUnavailable("half-open")
        return await super().changed_since_last_poll()


@asynccontextmanager
async def a_feed(
    source: MemoryPolicySource,
    folder: Path,
    *,
    poll_seconds: float = 10,
    telemetry: MemoryTelemetry | None = None,
    in_flight: Mapping[int, int] = MappingProxyType({}),
    now: Callable[[], float] = time.monotonic,
) -> AsyncIterator[PolicyFeed]:
    feed = PolicyFeed(
        source,
        JsonSnapshotFile(folder / "policy.json"),
        telemetry or MemoryTelemetry(),
        instance="proxy-1",
        poll_seconds=poll_seconds,
        now=now,
        on_swap=lambda _: None,
        in_flight=lambda: dict(in_flight),
        retry_seconds=SOON,
        save_seconds=SOON,
    )
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop()


def a_source(kind: type[MemoryPolicySource] = MemoryPolicySource) -> MemoryPolicySource:
    return kind({"models": {"visits": policy_rows()}, "keys": []})


async def until(condition: Callable[[], bool], seconds: float = 20) -> float:
    """Return how long it took, in seconds."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, "it never came true"
        await asyncio.sleep(0.005)
    return time.monotonic() - started


def generation(snapshot: PolicySnapshot | None) -> int:
    return snapshot.policies["visits"].generation if snapshot and "visits" in snapshot.policies else 0


@pytest.mark.alone
async def test_a_notified_change_is_what_requests_see_at_once(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        source.change_policy("visits", challenger_version=2, challenger_weight=5)

        assert await until(lambda: generation(feed.snapshot) == 2) < 0.1


@pytest.mark.alone
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


@pytest.mark.alone
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
    with capture_logs() as lines:
        async with a_feed(source, tmp_path, poll_seconds=0.05) as feed:
            source.available = False
            await until(lambda: feed.degraded)

            assert generation(feed.snapshot) == 1

            source.available = True
            await until(lambda: not feed.degraded)

    told = [line for line in lines if line["event"].startswith("postgres.")]
    assert [line["event"] for line in told] == ["postgres.away", "postgres.back"]
    assert (
        told[0]["still_works"] == "calls, by the policies that were read last (models: 1); rows of the log wait on disk"
    )


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


async def test_a_database_restored_to_an_older_state_is_what_proxies_act_on(tmp_path):
    source = MemoryPolicySource({"models": {"visits": policy_rows(generation=41)}, "keys": []})
    async with a_feed(source, tmp_path) as feed:
        await until((tmp_path / "policy.json").exists)
        source.put_model("visits", policy_rows(generation=11, champion_version=2))
        await until(lambda: generation(feed.snapshot) == 11)
    source.put_model("visits", policy_rows(generation=3))

    async with a_feed(source, tmp_path) as feed:
        assert generation(feed.snapshot) == 3


@pytest.mark.deep
async def test_a_change_arrives_although_loading_it_went_wrong_unexpectedly(tmp_path):
    source, telemetry = FailsOnce({"models": {"visits": policy_rows()}, "keys": []}), MemoryTelemetry()
    async with a_feed(source, tmp_path, telemetry=telemetry) as feed:
        source.change_policy("visits", champion_version=2)

        await until(lambda: generation(feed.snapshot) == 2)
        assert telemetry.counts["background_failures_total", "policy_reload"] == 1
        assert not feed.degraded


@pytest.mark.alone
async def test_after_a_failed_poll_the_next_one_does_not_wait_for_its_time(tmp_path):
    source = SilentPolls({"models": {"visits": policy_rows()}, "keys": []})
    async with a_feed(source, tmp_path, poll_seconds=1.5) as feed:
        source.change_policy("visits", champion_version=2)

        assert await until(lambda: generation(feed.snapshot) == 2) < 2.9


async def test_a_model_that_cannot_be_saved_keeps_no_other_from_being_saved_and_reported(tmp_path):
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    source = a_source()
    async with a_feed(source, tmp_path):
        source.put_model("deep", policy_rows(versions=[a_version_row("1", backend={"deep": deep})]))
        source.change_policy("visits", champion_version=2)

        await until(lambda: source.reported.get("proxy-1") == {"visits": 2, "deep": 1})
    saved = orjson.loads((tmp_path / "policy.json").read_bytes())
    assert saved["models"].keys() == {"visits"}
    assert saved["models"]["visits"]["policy"]["generation"] == 2


async def test_the_secret_of_the_shared_cache_outlives_a_restart_without_the_registry(tmp_path):
    source = a_source()
    source.put_cache_secret(bytes(32))
    async with a_feed(source, tmp_path):
        await until((tmp_path / "policy.json").exists)
    source.available = False

    async with a_feed(source, tmp_path) as feed:
        assert feed.snapshot is not None
        assert feed.snapshot.cache_secret == bytes(32)


async def test_a_new_secret_of_the_shared_cache_is_used_without_a_restart(tmp_path):
    source = a_source()
    source.put_cache_secret(bytes(32))
    async with a_feed(source, tmp_path) as feed:
        source.change_policy("visits", champion_version=2)
        await until(lambda: generation(feed.snapshot) == 2)
        assert feed.snapshot is not None
        assert feed.snapshot.cache_secret == bytes(32)

        source.put_cache_secret(b"1" * 32)

        await until(lambda: feed.snapshot is not None and feed.snapshot.cache_secret == b"1" * 32)


async def test_a_file_with_keys_that_cannot_be_read_still_serves_its_models(tmp_path):
    document = {"models": {"visits": policy_rows()}, "keys": [{"id": "k1", "sha256": "no hex", "scopes": []}]}
    (tmp_path / "policy.json").write_bytes(orjson.dumps(document))
    source = a_source()
    source.available = False

    async with a_feed(source, tmp_path) as feed:
        assert generation(feed.snapshot) == 1


async def test_a_report_that_fails_says_nothing_about_the_policies(tmp_path):
    class Unreportable(MemoryPolicySource):
        asked = 0

        async def report(self, *_: object) -> None:
            self.asked += 1
            raise RegistryUnavailable("another session holds the table")

    source = Unreportable({"models": {"visits": policy_rows()}, "keys": []})
    async with a_feed(source, tmp_path) as feed:
        await until(lambda: source.asked > 0)

        assert not feed.degraded


async def test_the_shares_of_challenger_and_further_arms_are_gauges(tmp_path):
    arms = [{"version_id": 3, "first": 90, "last": 99}]
    rows = policy_rows(challenger_version=2, challenger_weight=20, arms=arms)
    telemetry = MemoryTelemetry()
    async with a_feed(MemoryPolicySource({"models": {"visits": rows}, "keys": []}), tmp_path, telemetry=telemetry):
        assert telemetry.gauges["challenger_weight_ratio", "visits"] == 0.2
        assert telemetry.gauges["arms_weight_ratio", "visits"] == 0.1


async def test_one_gauge_names_the_version_of_each_role_and_follows_the_policy(tmp_path):
    source, telemetry = a_source(), MemoryTelemetry()
    async with a_feed(source, tmp_path, telemetry=telemetry) as feed:
        before = [labels[1:] for labels in telemetry.gauges if labels[0] == "policy_info"]
        source.change_policy("visits", challenger_version=2, challenger_weight=5)
        await until(lambda: generation(feed.snapshot) == 2)

    assert before == [("visits", "1", "", "")]
    assert [labels[1:] for labels in telemetry.gauges if labels[0] == "policy_info"] == [("visits", "1", "2", "")]


@pytest.mark.parametrize("read", ["by name", "whole"])
async def test_the_gauges_of_a_model_go_with_it(tmp_path, read):
    rows = {"visits": policy_rows(), "broken": policy_rows(champion_version=9)}
    source, telemetry = MemoryPolicySource({"models": rows, "keys": []}), MemoryTelemetry()
    async with a_feed(source, tmp_path, telemetry=telemetry) as feed:
        assert telemetry.gauges["policy_rejected", "broken"] == 1
        assert telemetry.gauges["policy_generation", "visits"] == 1
        await asyncio.sleep(0.05)  # what is read when the listener stands is over
        source.available = read == "by name"
        for name in rows:
            source.remove_model(name)
        source.available = True

        await until(lambda: feed.snapshot is not None and not {*feed.snapshot.policies, *feed.snapshot.rejected})

    assert [labels for labels in telemetry.gauges if len(labels) > 1] == []


async def test_a_proxy_says_that_it_has_read_a_change_at_the_poll_after_it_and_not_ten_seconds_later(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=0.1):
        await until(lambda: "proxy-1" in source.reported)
        source.change_policy("visits", challenger_version=2, challenger_weight=5)
        changed = source.last_xid

        assert await until(lambda: (source.horizons["proxy-1"] or 0) > changed) < 5


async def test_a_proxy_says_that_it_has_read_a_change_long_before_the_next_poll_is_due(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=3_600):
        await until(lambda: "proxy-1" in source.reported)
        source.change_policy("visits", challenger_version=2, challenger_weight=5)
        changed = source.last_xid

        await until(lambda: (source.horizons["proxy-1"] or 0) > changed)


async def test_changes_without_a_pause_do_not_keep_a_proxy_from_saying_what_it_has_read(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=0.1):
        await until(lambda: "proxy-1" in source.reported)
        changed = source.last_xid + 1

        async def change() -> None:
            while True:
                source.change_policy("visits", challenger_version=2, challenger_weight=5)
                await asyncio.sleep(SOON)

        changing = asyncio.create_task(change())
        try:
            await until(lambda: (source.horizons["proxy-1"] or 0) > changed)
        finally:
            changing.cancel()


async def test_a_change_that_an_open_transaction_keeps_behind_the_horizon_is_said_to_be_read_once_that_ends(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=0.05):
        await until(lambda: "proxy-1" in source.reported)
        source.change_policy("visits", challenger_version=2, challenger_weight=4)
        source.oldest_open = opened = source.last_xid + 1
        source.change_policy("visits", challenger_version=2, challenger_weight=5)
        changed = source.last_xid
        await until(lambda: source.horizons["proxy-1"] == opened)

        source.oldest_open = None

        assert await until(lambda: (source.horizons["proxy-1"] or 0) > changed) < REPORT_SECONDS / 2


async def test_a_call_that_holds_a_version_with_a_removed_endpoint_is_reported_until_it_is_over(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        assert feed.snapshot is not None
        held = feed.snapshot.policies["visits"].champion
        rows = policy_rows(versions=[a_version_row("1", endpoints=[]), a_version_row("2"), a_version_row("3")])
        source.put_model("visits", rows)
        version_id = held.id
        await until(lambda: source.in_flight.get("proxy-1") == {version_id: 1})

        del held

        await until(lambda: source.in_flight["proxy-1"] == {version_id: 0})


async def test_a_proxy_that_acts_on_older_rows_of_a_model_does_not_say_that_it_has_read_the_newer_ones(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path, poll_seconds=0.05) as feed:
        await until(lambda: source.horizons.get("proxy-1") is not None)
        source.change_policy("visits", champion_version=77)
        await until(lambda: feed.snapshot is not None and bool(feed.snapshot.rejected))

        await until(lambda: source.horizons["proxy-1"] is None)


async def test_calls_in_flight_at_a_version_that_gets_no_more_are_reported_at_each_look_until_they_end(tmp_path):
    source = MemoryPolicySource({"models": {"visits": policy_rows(generation=1)}, "keys": []})
    in_flight = {1: 4, 99: 2}
    async with a_feed(source, tmp_path, in_flight=in_flight):
        await until(lambda: source.in_flight.get("proxy-1") == {1: 4, 99: 2})

        in_flight[99] = 1
        await until(lambda: source.in_flight["proxy-1"] == {1: 4, 99: 1})
        del in_flight[99]
        await until(lambda: source.in_flight["proxy-1"] == {1: 4})


# -- thousands of models -----------------------------------------------------------------------------------------------

MANY = 300
MAX_PER_TURN = 3
"""Models that a turn of two milliseconds has at most when each takes one, by the clock of these tests."""


class Turns:
    """Counts the turns of the event loop, and what was done in each."""

    def __init__(self) -> None:
        self.number = 0
        self.done: dict[tuple[str, int], int] = {}
        self._thread = threading.get_ident()

    async def count(self) -> None:
        while True:
            self.number += 1
            await asyncio.sleep(0)

    def note(self, work: str) -> None:
        if threading.get_ident() == self._thread:  # the file is written in another one
            self.done[work, self.number] = self.done.get((work, self.number), 0) + 1

    def most(self, work: str) -> int:
        return max(count for (what, _), count in self.done.items() if what == work)


class NotedRows(Mapping[str, Any]):
    """A model's rows, which note when their policy is asked for."""

    def __init__(self, rows: Mapping[str, Any], turns: Turns) -> None:
        self._rows, self._turns = rows, turns

    def __getitem__(self, key: str) -> Any:
        if key == "policy":
            self._turns.note("compiled")
        return self._rows[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class NotedSource(MemoryPolicySource):
    """A source that counts what it is asked, and whose rows note when they are read."""

    def __init__(self, document: PolicyDocument, turns: Turns) -> None:
        super().__init__(document)
        self.turns = turns
        self.loads: list[int | None] = []
        self.polls = 0

    async def load(self, model_names: Sequence[str] | None = None) -> PolicyDocument:
        self.loads.append(None if model_names is None else len(model_names))
        document = await super().load(model_names)
        return {**document, "models": {name: NotedRows(rows, self.turns) for name, rows in document["models"].items()}}

    async def changed_since_last_poll(self) -> Sequence[str]:
        self.polls += 1
        return await super().changed_since_last_poll()


class NotedTelemetry(MemoryTelemetry):
    """Telemetry that notes when gauges of models are set."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns

    def set(self, name: str, value: float, *labels: str) -> None:
        if labels:
            self.turns.note(name)
        super().set(name, value, *labels)


@pytest.mark.deep
async def test_the_event_loop_has_its_turn_after_each_few_of_many_models(tmp_path):
    turns = Turns()
    source = NotedSource({"models": {f"m{n}": policy_rows() for n in range(MANY)}, "keys": []}, turns)
    milliseconds = itertools.count()
    counting = asyncio.create_task(turns.count())
    telemetry = NotedTelemetry(turns)
    async with a_feed(source, tmp_path, telemetry=telemetry, now=lambda: next(milliseconds) / 1000) as feed:
        for number in range(MANY):
            source.change_policy(f"m{number}", challenger_version=2, challenger_weight=5)
        wanted = [("policy_generation", f"m{number}") for number in range(MANY)]
        await until(lambda: all(telemetry.gauges.get(gauge) == 2 for gauge in wanted))
        assert feed.snapshot is not None
        assert {policy.challenger_weight for policy in feed.snapshot.policies.values()} == {5}
    counting.cancel()

    assert sum(count for (work, _), count in turns.done.items() if work == "compiled") >= 2 * MANY
    assert turns.most("compiled") <= MAX_PER_TURN
    assert turns.most("policy_generation") <= MAX_PER_TURN


async def test_gauges_that_are_as_they_were_are_not_set_again(tmp_path):
    turns = Turns()
    source = NotedSource({"models": {"visits": policy_rows(), "churn": policy_rows()}, "keys": []}, turns)
    telemetry = NotedTelemetry(turns)
    async with a_feed(source, tmp_path, telemetry=telemetry):
        turns.done.clear()
        source.change_policy("visits", shadow_percent=50)
        await until(lambda: telemetry.gauges["policy_generation", "visits"] == 2)

    assert {work for work, _ in turns.done} == {"compiled", "policy_generation"}


@pytest.mark.deep
async def test_after_a_start_the_first_subscription_asks_what_changed_and_a_later_one_reads_everything(tmp_path):
    source = NotedSource({"models": {"visits": policy_rows()}, "keys": []}, Turns())
    async with a_feed(source, tmp_path, poll_seconds=0.5) as feed:
        source.change_policy("visits", champion_version=2)  # before anybody listens
        await until(lambda: source.polls > 0 and generation(feed.snapshot) == 2)
        assert source.loads == [None, 1]

        source.available = False
        await until(lambda: feed.degraded)
        source.available = True
        await until(lambda: source.loads.count(None) == 2)


# -- signing off -------------------------------------------------------------------------------------------------------


class SlowReports(MemoryPolicySource):
    """A source whose reports arrive when they are let through, even if the proxy has stopped waiting."""

    def __init__(self, document: PolicyDocument | None = None) -> None:
        super().__init__(document)
        self.asked, self.let_through = asyncio.Event(), asyncio.Event()

    async def report(
        self, instance: str, generations: Mapping[str, int], in_flight: Mapping[int, int], horizon: int | None
    ) -> None:
        self.asked.set()
        try:
            await self.let_through.wait()
        finally:
            await super().report(instance, generations, in_flight, horizon)


class HungSignOffs(MemoryPolicySource):
    """A source that does not answer a proxy that signs off."""

    asked = 0

    async def sign_off(self, instance: str) -> None:
        self.asked += 1
        await asyncio.Event().wait()


async def test_a_proxy_that_signs_off_has_reported_for_the_last_time(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        await until(lambda: "proxy-1" in source.reported)

        await feed.sign_off()
        source.change_policy("visits", challenger_version=2, challenger_weight=5)
        await asyncio.sleep(0.05)

        assert source.reported == {}
        assert generation(feed.snapshot) == 1


async def test_a_report_under_way_does_not_bring_back_a_proxy_that_signs_off(tmp_path):
    source = a_source(SlowReports)
    assert isinstance(source, SlowReports)
    async with a_feed(source, tmp_path) as feed:
        await asyncio.wait_for(source.asked.wait(), 10)

        signing_off = asyncio.create_task(feed.sign_off())
        await asyncio.sleep(0)
        source.let_through.set()
        await signing_off

    assert source.reported == {}


@pytest.mark.alone
async def test_a_proxy_that_cannot_sign_off_stops_all_the_same(tmp_path):
    source = a_source(HungSignOffs)
    assert isinstance(source, HungSignOffs)
    async with a_feed(source, tmp_path) as feed:
        await until(lambda: "proxy-1" in source.reported)
        began = time.monotonic()

        await feed.sign_off()

        assert time.monotonic() - began < SIGN_OFF_SECONDS + 1
    assert (source.asked, set(source.reported)) == (1, {"proxy-1"})


async def test_a_registry_that_is_away_is_no_error_for_a_proxy_that_signs_off(tmp_path):
    source = a_source()
    async with a_feed(source, tmp_path) as feed:
        await until(lambda: "proxy-1" in source.reported)
        source.available = False

        await feed.sign_off()

    assert set(source.reported) == {"proxy-1"}


async def test_a_proxy_that_never_reported_has_nothing_to_take_back(tmp_path):
    source = a_source(HungSignOffs)
    assert isinstance(source, HungSignOffs)
    source.available = False
    async with a_feed(source, tmp_path) as feed:
        await feed.sign_off()

    assert source.asked == 0
