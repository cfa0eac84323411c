"""What is kept of a rollout between looks, and what is read again."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import Window
from understudy.ports.window_log import BLOCK_SECONDS, MARKED_SECONDS, WindowLog
from understudy.rollout.window_cache import SETTLED_SECONDS, WindowCache


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
    found = await cache.strata(ROLLOUT, now)
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


async def test_what_was_read_stays_when_time_is_over_and_the_next_look_goes_on(windows):
    log = Counting(windows)
    cache = WindowCache(log)

    looks = 0
    while (found := await cache.strata(ROLLOUT, NOW, seconds=0.0)) is None:
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
