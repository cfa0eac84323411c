"""What is kept of a rollout between looks, and what is read again."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.core.canary.latency.champion_before import ChampionBefore, champion_before
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.routing.policy import Role
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import Window
from understudy.ports.monitoring.window_log import (
    BLOCK_SECONDS,
    MARKED_SECONDS,
    STEP_SECONDS,
    LatestWindows,
    WindowLog,
)
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.window_cache import EARLY_SECONDS, SETTLED_SECONDS, WindowCache


class Counting(MemoryPredictionStore):
    """The twin, which also tells which blocks were read."""

    def __init__(self, windows: Sequence[Window]) -> None:
        super().__init__()
        self.read: list[float] = []
        self.add(windows)

    def add(self, windows: Sequence[Window]) -> None:
        self.windows.update((window.key, window) for window in windows)

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = float("inf")) -> Sequence[Window]:
        if until - since == BLOCK_SECONDS:
            self.read.append(since)
        return await super().of_rollout(rollout_id, since, until)


BLOCKS = 6
NOW = BLOCKS * BLOCK_SECONDS + SETTLED_SECONDS + 65.0
ALL_BLOCKS = [place * BLOCK_SECONDS for place in range(BLOCKS)]


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return Traffic(World("any", requests_per_minute=200), 1).windows(0, int(NOW) // 60 * PER_MINUTE, 20.0)


def late(window: Window) -> Window:
    return replace(window, key=window.key._replace(epoch=1))


async def strata_of(cache: WindowCache, now: float = NOW) -> Strata:
    found = await cache.strata(ROLLOUT, now, started_at=0.0)
    assert found is not None
    return found


async def assert_all_is_there(found: Strata, log: WindowLog) -> None:
    expected = stratify(await log.of_rollout(ROLLOUT), ROLLOUT)
    assert np.array_equal(found.starts, expected.starts)
    for ours, theirs in ((found.champion, expected.champion), (found.challenger, expected.challenger)):
        assert np.allclose(ours.sums, theirs.sums, rtol=1e-12)
        assert np.allclose(ours.buckets, theirs.buckets, rtol=1e-12)
    assert found.arrivals.new_entities.sum() == expected.arrivals.new_entities.sum()


async def test_a_second_look_reads_no_block_again(windows):
    log = Counting(windows)
    cache = WindowCache(log)

    await assert_all_is_there(await strata_of(cache), log)
    first, log.read = [start for start in log.read if start in ALL_BLOCKS], []
    await assert_all_is_there(await strata_of(cache), log)

    assert (first, [start for start in log.read if start in ALL_BLOCKS]) == (ALL_BLOCKS, [])


async def test_a_late_window_has_its_own_block_read_again_and_no_other(windows):
    log = Counting(windows)
    cache = WindowCache(log)
    await strata_of(cache)
    log.read.clear()

    log.add([late(next(window for window in windows if window.key.start == 2 * BLOCK_SECONDS + 30))])

    await assert_all_is_there(await strata_of(cache), log)
    assert [start for start in log.read if start in ALL_BLOCKS] == [2 * BLOCK_SECONDS]


class CountingReads(Counting):
    """The twin, which also tells from when to when windows were read."""

    def __init__(self, windows: Sequence[Window]) -> None:
        super().__init__(windows)
        self.ranges: list[tuple[float, float]] = []

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = float("inf")) -> Sequence[Window]:
        if until - since <= BLOCK_SECONDS:  # the twin also counts windows to make marks of them
            self.ranges.append((since, until))
        return await super().of_rollout(rollout_id, since, until)


LAST = BLOCKS * BLOCK_SECONDS
"""Where the block starts that grows in the tests below."""


async def test_of_the_block_that_grows_only_new_minutes_are_read_and_at_its_end_the_whole_once():
    windows = Traffic(World("any", requests_per_minute=200), 1).windows(0, (BLOCKS + 2) * 15 * PER_MINUTE, 20.0)
    log, read = CountingReads(windows), []
    cache = WindowCache(log)
    await strata_of(cache)

    for minute in range(1, 17):
        log.ranges.clear()
        await assert_all_is_there(await strata_of(cache, NOW + minute * STEP_SECONDS), log)
        read.append(tuple(log.ranges))

    steps = [(start, start + STEP_SECONDS) for start in range(LAST + STEP_SECONDS, LAST + BLOCK_SECONDS, STEP_SECONDS)]
    end = LAST + BLOCK_SECONDS
    next_steps = [(end, end + STEP_SECONDS), (end + STEP_SECONDS, end + 2 * STEP_SECONDS)]
    assert read == [(one,) for one in (*steps[:-1], (LAST, end), *next_steps)]


async def test_a_late_window_of_the_block_that_grows_is_counted_once(windows):
    log = CountingReads(windows)
    cache, now = WindowCache(log), NOW + 10 * STEP_SECONDS
    without = [w for w in windows if not LAST + 240 <= w.key.start < LAST + 300]
    log.windows = {w.key: w for w in without}
    await strata_of(cache, now)

    log.add([w for w in windows if LAST + 255 <= w.key.start < LAST + 270])  # of a minute that had none
    await assert_all_is_there(await strata_of(cache, now), log)
    log.add([late(next(w for w in windows if w.key.start == LAST + 30))])

    await assert_all_is_there(await strata_of(cache, now), log)


class WritingMeanwhile(CountingReads):
    """The twin, in which windows are written just before others are read."""

    meanwhile: Sequence[Window] = ()

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = float("inf")) -> Sequence[Window]:
        if since == LAST:
            self.add(self.meanwhile)
        return await super().of_rollout(rollout_id, since, until)


async def test_windows_of_a_minute_that_had_none_are_counted_once_where_they_come_while_others_are_read(windows):
    log = WritingMeanwhile([w for w in windows if not LAST + 60 <= w.key.start < LAST + 120])
    log.meanwhile = [w for w in windows if LAST + 60 <= w.key.start < LAST + 120]
    cache, now = WindowCache(log), NOW + 2 * STEP_SECONDS

    before = await strata_of(cache, now)

    assert LAST + 60 not in before.starts
    await assert_all_is_there(await strata_of(cache, now), log)


async def test_rollouts_whose_numbers_follow_each_other_read_their_new_minutes_in_different_ticks(windows):
    others = [replace(w, key=w.key._replace(rollout_id=number)) for w in windows for number in range(1, 13)]
    log = CountingReads(others)
    cache = WindowCache(log)

    async def reads_at(now: float) -> int:
        log.ranges.clear()
        for number in range(1, 13):
            await cache.strata(number, now, started_at=0.0)
        return len(log.ranges)

    await reads_at(NOW)
    assert [await reads_at(NOW + 5 * tick) for tick in range(1, 13)] == [1] * 12


async def test_what_was_read_stays_when_time_is_over_and_the_next_look_goes_on(windows):
    log = Counting(windows)
    cache = WindowCache(log)

    looks = 0
    while (found := await cache.strata(ROLLOUT, NOW, started_at=0.0, seconds=0.0)) is None:
        looks += 1
        assert log.read == ALL_BLOCKS[:looks]

    assert looks == BLOCKS
    await assert_all_is_there(found, log)


async def test_blocks_that_were_deleted_are_forgotten(windows):
    log = Counting(windows)
    cache = WindowCache(log)
    await strata_of(cache)

    await log.forget(2 * BLOCK_SECONDS, 100_000)

    found = await strata_of(cache)
    assert found.starts[0] == 2 * BLOCK_SECONDS
    await assert_all_is_there(found, log)


@pytest.mark.deep
async def test_a_late_window_of_an_earlier_day_is_seen_within_as_many_looks_as_there_are_days(windows):
    days = [
        replace(w, key=w.key._replace(start=w.key.start + MARKED_SECONDS * day)) for day in range(3) for w in windows
    ]
    log = Counting(days)
    cache, now = WindowCache(log), NOW + 2 * MARKED_SECONDS
    await assert_all_is_there(await strata_of(cache, now), log)

    log.add([late(days[0])])

    await strata_of(cache, now)
    await strata_of(cache, now)
    await assert_all_is_there(await strata_of(cache, now), log)


class CountingSurveys(Counting):
    """The twin, which also tells from where on marks were read."""

    def __init__(self, windows: Sequence[Window]) -> None:
        super().__init__(windows)
        self.surveyed: list[int] = []

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        self.surveyed.append(since)
        return await super().latest_of_rollout(rollout_id, since, settled)


DAYS = 40


def one_a_day(windows: Sequence[Window]) -> list[Window]:
    """Return windows of as many days, of which the last one has all."""
    a_day = [w for w in windows if w.key.start < 4 * 60]
    return [on_day(w, day) for day in range(DAYS) for w in (a_day if day < DAYS - 1 else windows)]


def on_day(window: Window, day: int) -> Window:
    return replace(window, key=window.key._replace(start=window.key.start + MARKED_SECONDS * day))


async def test_windows_of_the_days_before_a_rollout_cost_nothing_and_are_left_out(windows):
    log, last_day = CountingSurveys(one_a_day(windows)), MARKED_SECONDS * (DAYS - 1)
    cache, started_at = WindowCache(log), float(last_day + 100)

    found = await cache.strata(ROLLOUT, NOW + last_day, started_at=started_at)
    again = await cache.strata(ROLLOUT, NOW + last_day, started_at=started_at)

    assert found is not None
    assert again is not None
    assert found.starts[0] == again.starts[0] == last_day
    assert log.surveyed == [last_day - EARLY_SECONDS] * 2


async def test_windows_of_a_slow_clock_count_though_they_start_before_the_rollout(windows):
    log = Counting(windows)

    found = await WindowCache(log).strata(ROLLOUT, NOW, started_at=float(EARLY_SECONDS))

    assert found is not None
    await assert_all_is_there(found, log)


@pytest.mark.deep
async def test_a_look_surveys_no_more_days_than_it_has_time_for_and_the_next_one_goes_on(windows):
    log, now = CountingSurveys(one_a_day(windows)), NOW + MARKED_SECONDS * (DAYS - 1)
    cache = WindowCache(log)

    surveys = []
    while (found := await cache.strata(ROLLOUT, now, started_at=0.0, seconds=0.0)) is None:
        surveys.append(len(log.surveyed))
        assert len(surveys) < 4 * DAYS

    assert surveys[:DAYS] == list(range(1, DAYS + 1))
    await assert_all_is_there(found, log)


HOUR = 3_600
CHAMPION_ID = 0
"""The version of the champion's windows in the simulated traffic."""


def a_view(read_at: float, *step_starts: float) -> RolloutView:
    policy = PolicySeen("6", "7", 0, 4, 1)
    state = replace(new_rollout_state(1, "churn", NAMED_PLANS["default"], policy, float(HOUR)), step_starts=step_starts)
    record = RolloutRecord(ROLLOUT, state, 1, CHAMPION_ID, 1, "salt", None, None, "dana", None, None)
    return RolloutView(record, policy, {}, 1, 1, {}, read_at)


class CountingVersions(Counting):
    """The twin, which also tells how often windows of versions were read."""

    reads = 0

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        self.reads += 1
        return await super().of_versions(version_ids, since, until)


async def test_what_the_champion_did_in_the_hour_before_is_read_once_more_when_all_of_it_is_shipped(windows):
    log = CountingVersions(windows)
    cache = WindowCache(log)
    own = [w for w in windows if w.key.role is Role.CHAMPION and w.key.start < HOUR]
    expected = champion_before(own, None)

    cold = await cache.with_champion_before(a_view(HOUR + 5.0))
    early, late, later = [
        await cache.with_champion_before(a_view(HOUR + seconds, HOUR + 1.0))
        for seconds in (5.0, SETTLED_SECONDS, SETTLED_SECONDS + 5)
    ]

    assert cold.champion_before == ChampionBefore()
    assert early.champion_before == late.champion_before == later.champion_before == expected
    assert log.reads == 2


async def test_it_is_read_again_when_the_threshold_of_slow_answers_is_learnt(windows):
    log = CountingVersions(windows)
    cache = WindowCache(log)
    view = a_view(HOUR + SETTLED_SECONDS, HOUR + 1.0)
    learnt = view._replace(record=view.record._replace(slow_us=20_000))

    before, after = [await cache.with_champion_before(one) for one in (view, learnt)]

    assert (before.champion_before.tail_steps, len(after.champion_before.tail_steps)) == ((), 2)
    assert log.reads == 2


async def test_the_hour_before_of_rollouts_that_are_over_is_forgotten(windows):
    log = CountingVersions(windows)
    cache = WindowCache(log)
    view = a_view(HOUR + SETTLED_SECONDS, HOUR + 1.0)
    await cache.with_champion_before(view)

    cache.forget_others([])
    await cache.with_champion_before(view)

    assert log.reads == 2
