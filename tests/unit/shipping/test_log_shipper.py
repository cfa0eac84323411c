import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.spooled_rows import a_prediction_id, a_row, ids_in, new_windows, no_threshold

from understudy.adapters.memory.prediction_log import MemoryPredictionStore, MemorySpool
from understudy.core.windows.window import Window
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteResult
from understudy.shipping.log_shipper import LogShipper, halve

POISON = b"poison"


TURN_ROWS = 3
"""Of a write."""


class Recorded:
    """Telemetry as two dictionaries."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, ...], float] = {}
        self.values: dict[str, float] = {}
        self.history: list[tuple[str, float]] = []

    def predicted(self, *_: Any) -> None: ...

    def count(self, name: str, *labels: str, by: float = 1) -> None:
        self.counts[name, *labels] = self.counts.get((name, *labels), 0) + by

    def observe(self, name: str, value: float, *labels: str) -> None: ...

    def set(self, name: str, value: float, *_labels: str) -> None:
        self.values[name] = value
        self.history.append((name, value))

    def forget(self, name: str, *_labels: str) -> None: ...


class LosesConnections:
    """A store whose connection is lost before, or just after, each write that ``fate`` names."""

    def __init__(self, inner: MemoryPredictionStore, fates: list[str]) -> None:
        self.inner = inner
        self.committed = inner.committed
        self.reject = inner.reject
        self.close = inner.close
        self._fates = fates

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        fate = self._fates.pop(0) if self._fates else "stays"
        if fate == "before":
            raise RegistryUnavailable("lost before the commit")
        result = await self.inner.write(batch, windows)
        if fate == "after":
            raise RegistryUnavailable("lost after the commit, before its answer")
        return result


class Slow(LosesConnections):
    """A store that lets others run inside each write."""

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        await asyncio.sleep(0)
        result = await self.inner.write(batch, windows)
        await asyncio.sleep(0)
        return result


def refuses_poison(row: bytes) -> str | None:
    return "22P05 unsupported Unicode escape sequence" if POISON in row else None


def a_shipper(spool: MemorySpool, store: Any, telemetry: Recorded | None = None, **given: Any) -> LogShipper:
    settings: dict[str, Any] = {"batch_rows": 4, "interval_seconds": 0.001, **given}
    return LogShipper(spool, store, new_windows, no_threshold, telemetry or Recorded(), **settings)


def a_spool(rows: int, poison: frozenset[int] = frozenset(), **given: Any) -> MemorySpool:
    spool = MemorySpool(**given)
    for start in range(0, rows, TURN_ROWS):
        turn = range(start, min(start + TURN_ROWS, rows))
        assert not spool.append_all([a_row(one, prediction=b'"poison"' if one in poison else b"1") for one in turn])
    return spool


async def run_until(shipper: LogShipper, done: Callable[[], bool]) -> None:
    running = asyncio.create_task(shipper.run())
    async with asyncio.timeout(30):
        while not done():  # noqa: ASYNC110 - what is awaited is a state, and the twins announce none
            await asyncio.sleep(0.001)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def all_ids(rows: int) -> list[str]:
    return [a_prediction_id(number) for number in range(rows)]


async def test_every_row_arrives_once_and_in_order_over_many_batches_and_segments():
    spool, store, telemetry = a_spool(50, segment_bytes=1_000), MemoryPredictionStore(), Recorded()

    await a_shipper(spool, store, telemetry).drain(1.0)

    assert ids_in(store.rows) == all_ids(50)
    assert telemetry.counts == {("prediction_log_rows_total", "written"): 50}
    assert telemetry.values == {"prediction_log_oldest_seconds": 0.0, "prediction_log_spool_bytes": 0}


class CountsQuestions(LosesConnections):
    """A store that counts how often it is asked for a spool's place."""

    def __init__(self, inner: MemoryPredictionStore) -> None:
        super().__init__(inner, [])
        self.questions = 0
        self.committed = self._count

    async def _count(self, spool_id: str) -> tuple[int, int]:
        self.questions += 1
        return await self.inner.committed(spool_id)


async def test_a_place_that_is_known_is_asked_for_again_now_and_then_so_that_it_stays_known():
    spool, often, once = a_spool(3), CountsQuestions(MemoryPredictionStore()), CountsQuestions(MemoryPredictionStore())

    await run_until(a_shipper(spool, often, sign_seconds=0.0), lambda: often.questions == 5)
    written_twice = a_spool(3)
    shipper = a_shipper(written_twice, once)
    await run_until(shipper, lambda: len(once.inner.rows) == 3)
    written_twice.append(a_row(3))
    await run_until(shipper, lambda: len(once.inner.rows) == 4)

    assert ids_in(often.inner.rows) == all_ids(3)
    assert once.questions <= 3


async def test_rows_appended_while_it_runs_are_shipped_too():
    spool, store = a_spool(3), MemoryPredictionStore()
    shipper = a_shipper(spool, store)

    await run_until(shipper, lambda: len(store.rows) == 3)
    spool.append(a_row(3))
    await run_until(shipper, lambda: len(store.rows) == 4)

    assert ids_in(store.rows) == all_ids(4)


@pytest.mark.deep
@given(st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.frozensets(st.integers(0, n - 1)))))
def test_poison_rows_anywhere_go_to_the_dead_letters_and_cost_no_neighbour(rows_and_poison):
    rows, poison = rows_and_poison
    spool, store, telemetry = a_spool(rows, poison), MemoryPredictionStore(refuses_poison), Recorded()

    asyncio.run(a_shipper(spool, store, telemetry, batch_rows=16).drain(5.0))

    assert ids_in(store.rows) == [a_prediction_id(number) for number in range(rows) if number not in poison]
    assert ids_in(letter.row for letter in store.dead_letters) == list(map(a_prediction_id, sorted(poison)))
    assert all("22P05" in letter.why for letter in store.dead_letters)
    assert telemetry.counts.get(("prediction_log_rows_total", "rejected"), 0) == len(poison)
    assert spool.unshipped_bytes == 0


@pytest.mark.deep
@given(st.lists(st.sampled_from(["before", "after", "stays"]), max_size=8), st.frozensets(st.integers(0, 11)))
def test_a_connection_lost_around_a_commit_neither_loses_nor_doubles_a_row(fates, poison):
    spool = a_spool(12, poison, segment_bytes=1_000)
    store = MemoryPredictionStore(refuses_poison)
    shipper = a_shipper(spool, LosesConnections(store, list(fates)))

    async def ship() -> None:
        for _ in range(len(fates) + 1):
            await shipper.drain(1.0)

    asyncio.run(ship())

    assert ids_in(store.rows) == [a_prediction_id(number) for number in range(12) if number not in poison]
    assert len(store.dead_letters) == len(poison)


@pytest.mark.deep
@given(st.integers(1, 30), st.integers(1, 7), st.integers(1, 7), st.frozensets(st.integers(0, 29)))
def test_two_shippers_at_once_on_one_spool_write_every_row_once(rows, one, other, poison):
    spool = a_spool(rows, poison, segment_bytes=1_500)
    store = MemoryPredictionStore(refuses_poison)
    slow = Slow(store, [])

    async def ship() -> None:
        shippers = (a_shipper(spool, slow, batch_rows=size) for size in (one, other))
        await asyncio.gather(*(shipper.drain(5.0) for shipper in shippers))

    asyncio.run(ship())

    assert ids_in(store.rows) == [a_prediction_id(number) for number in range(rows) if number not in poison]
    assert len(store.dead_letters) == len([number for number in poison if number < rows])


async def test_while_the_database_is_away_it_keeps_trying_and_the_oldest_row_grows_older():
    spool, store, telemetry = a_spool(2), MemoryPredictionStore(), Recorded()
    away = LosesConnections(store, ["before"] * 3)
    shipper = a_shipper(spool, away, telemetry, now=lambda: 1_763_661_060.25)

    await run_until(shipper, lambda: len(store.rows) == 2)

    assert ("prediction_log_oldest_seconds", 60.0) in telemetry.history
    assert ids_in(store.rows) == all_ids(2)


async def test_the_spools_of_dead_workers_are_shipped_to_their_end_and_removed():
    orphans = [a_spool(450, segment_bytes=4_000), MemorySpool()]
    spool, store = MemorySpool(orphans=orphans), MemoryPredictionStore()
    shipper = a_shipper(spool, store, orphan_seconds=0.001)

    await run_until(shipper, lambda: not spool.orphans_left)

    assert ids_in(store.rows) == all_ids(450)


class Meanwhile(LosesConnections):
    """A store that takes its time: during each write ``rows`` rows are appended."""

    def __init__(self, inner: MemoryPredictionStore, spool: MemorySpool, rows: int) -> None:
        super().__init__(inner, [])
        self._spool = spool
        self._rows = rows
        self.batches: list[int] = []

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        await asyncio.sleep(0.001)
        self.batches.append(len(batch.rows))
        for _ in range(self._rows):
            self._spool.append(a_row(900))
        return await self.inner.write(batch, windows)


@pytest.mark.parametrize("rows_meanwhile", [1, 3, 4, 6])
async def test_while_rows_keep_coming_the_spools_of_dead_workers_have_their_turn(rows_meanwhile):
    spool = a_spool(1, orphans=[a_spool(9)])
    store, telemetry = MemoryPredictionStore(), Recorded()
    shipper = a_shipper(spool, Meanwhile(store, spool, rows_meanwhile), telemetry, orphan_seconds=0.001)

    await run_until(shipper, lambda: not spool.orphans_left)

    assert set(all_ids(9)) <= set(ids_in(store.rows))


async def test_while_full_batches_wait_the_rest_of_each_segment_costs_no_pause():
    spool, store = a_spool(60, segment_bytes=1_200), MemoryPredictionStore()
    shipper = a_shipper(spool, store, interval_seconds=60)

    async with asyncio.timeout(5):
        await run_until(shipper, lambda: len(store.rows) >= 56)

    assert ids_in(store.rows) == all_ids(60)[: len(store.rows)]


@pytest.mark.deep
async def test_under_steady_load_rows_gather_for_the_interval_and_leave_together():
    spool, telemetry = a_spool(1), Recorded()
    store = Meanwhile(MemoryPredictionStore(), spool, 1)
    shipper = a_shipper(spool, store, telemetry, batch_rows=100, interval_seconds=0.2)
    began = time.monotonic()
    shipping = asyncio.create_task(shipper.run())
    for _ in range(50):
        await asyncio.sleep(0.01)
        spool.append(a_row(901))
    shipping.cancel()
    await asyncio.gather(shipping, return_exceptions=True)

    assert len(store.batches) <= (time.monotonic() - began) / 0.2 + 2
    assert ("prediction_log_spool_bytes", 0) not in telemetry.history[2:]
    assert telemetry.values["prediction_log_spool_bytes"] > 0


async def test_a_backlog_of_full_batches_leaves_without_a_pause():
    spool, store = a_spool(120), MemoryPredictionStore()
    shipper = a_shipper(spool, store, interval_seconds=60)

    await run_until(shipper, lambda: len(store.rows) == 120)

    assert ids_in(store.rows) == all_ids(120)


async def test_a_backlog_of_segments_shorter_than_a_batch_leaves_without_a_pause_but_for_the_last_ones():
    spool, store = a_spool(120, segment_bytes=1_000), MemoryPredictionStore()
    shipper = a_shipper(spool, store, batch_rows=1_000, interval_seconds=60)

    await run_until(shipper, lambda: len(store.rows) >= 110)

    assert ids_in(store.rows) == all_ids(len(store.rows))


async def test_rows_too_long_for_a_full_count_leave_without_a_pause_as_well():
    long = b'"%s"' % (b"x" * 300_000)
    spool, store = MemorySpool(limit_bytes=1 << 24, segment_bytes=1 << 24), MemoryPredictionStore()
    for number in range(14):
        assert spool.append(a_row(number, prediction=long))
    shipper = a_shipper(spool, store, batch_rows=1_000, interval_seconds=60)

    await run_until(shipper, lambda: len(store.rows) >= 12)

    assert ids_in(store.rows) == all_ids(len(store.rows))


async def test_damaged_bytes_are_kept_as_a_dead_letter_and_what_follows_is_shipped():
    spool = Damaged(a_spool(3))
    store, telemetry = MemoryPredictionStore(), Recorded()

    await a_shipper(spool, store, telemetry).drain(1.0)

    assert [(letter.row, letter.why) for letter in store.dead_letters] == [(b"\x00garbage", "damaged on disk")]
    assert ids_in(store.rows) == all_ids(3)
    assert telemetry.counts["prediction_log_rows_total", "rejected"] == 1


class Damaged(MemorySpool):
    """A spool whose first segment is unreadable, before those of another spool."""

    def __init__(self, rest: MemorySpool) -> None:
        super().__init__()
        self._rest = rest
        self._last = 10

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        if (segment, offset) == (0, 0):
            return SpooledBatch(self.spool_id, 0, 0, 8, (b"\x00garbage",), damage="damaged on disk", ends=(8,))
        return self._as_mine(self._rest.read_from(segment, offset, max_rows, max_bytes))

    def _as_mine(self, batch: SpooledBatch | None) -> SpooledBatch | None:
        return None if batch is None else batch._replace(spool_id=self.spool_id)


async def test_draining_ends_in_time_and_leaves_the_rest_on_disk():
    class Frozen(LosesConnections):
        async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
            await asyncio.sleep(60)
            return await self.inner.write(batch, windows)

    spool, store = a_spool(2), MemoryPredictionStore()

    async with asyncio.timeout(30):
        await a_shipper(spool, Frozen(store, [])).drain(0.05)
    await a_shipper(spool, store).drain(1.0)

    assert ids_in(store.rows) == all_ids(2)


@given(st.integers(2, 30))
def test_halves_join_without_gap_or_overlap(rows):
    batch = a_spool(rows).read_from(1, 0, rows, 1_048_576)
    assert batch is not None

    left, right = halve(batch)

    assert (left.start, left.end, right.end) == (batch.start, right.start, batch.end)
    assert [*left.rows, *right.rows] == list(batch.rows)
    assert left.rows
    assert right.rows
    record = len(batch.records.content) // rows
    assert [*left.ends, *right.ends] == list(batch.ends)
    assert (left.ends[-1], right.ends[-1]) == (left.end, right.end)
    assert left.records.content + right.records.content == batch.records.content
    assert len(left.records.content) == record * len(left.rows)


@pytest.mark.deep
@given(st.lists(st.sampled_from(["before", "after", "stays"]), max_size=6), st.frozensets(st.integers(0, 20)))
def test_the_windows_hold_each_logged_row_once_whatever_is_lost_and_refused(fates, poison):
    spool, inner = a_spool(21, poison), MemoryPredictionStore(refuses_poison)
    shipper = a_shipper(spool, LosesConnections(inner, list(fates)))

    async def ship() -> None:
        for _ in range(len(fates) + 1):
            await shipper.drain(5.0)

    asyncio.run(ship())

    assert sorted(ids_in(inner.rows)) == sorted(a_prediction_id(n) for n in range(21) if n not in poison)
    assert sum(window.calls for window in inner.windows.values()) == len(inner.rows)


class LacksColumns(MemoryPredictionStore):
    """A database without the columns of one spool, which a newer release wrote."""

    def __init__(self, spool_id: str) -> None:
        super().__init__()
        self.spool_id = spool_id

    async def write(self, batch: SpooledBatch, windows: Sequence[Window] = ()) -> WriteResult:
        if batch.spool_id == self.spool_id:
            raise MigrationNeeded("column is missing")
        return await super().write(batch, windows)


async def test_an_orphan_whose_columns_the_database_lacks_is_told_and_keeps_no_other_one_waiting():
    newer, other = a_spool(2), a_spool(3)
    spool, store, telemetry = MemorySpool(orphans=[newer, other]), LacksColumns(newer.spool_id), Recorded()

    await run_until(a_shipper(spool, store, telemetry), lambda: spool.orphans_left == 1)

    assert ids_in(store.rows) == all_ids(3)
    assert newer.unshipped_bytes
    assert telemetry.counts["prediction_log_errors_total", "E511"] >= 1


class Counted(MemorySpool):
    """A spool that counts how often its rows were read."""

    rows_read = 0

    def read_from(self, segment: int, offset: int, max_rows: int, max_bytes: int) -> SpooledBatch | None:
        batch = super().read_from(segment, offset, max_rows, max_bytes)
        self.rows_read += 0 if batch is None else len(batch.rows)
        return batch


async def test_rows_that_wait_for_the_next_turn_are_not_read_before_it():
    spool, store, telemetry = Counted(), MemoryPredictionStore(), Recorded()
    for number in range(15):
        assert spool.append(a_row(number))
    shipper = a_shipper(spool, store, telemetry, batch_rows=10, interval_seconds=60)

    await run_until(shipper, lambda: len([one for one in telemetry.history if one[0].endswith("spool_bytes")]) >= 3)

    assert ids_in(store.rows) == all_ids(10)
    assert spool.rows_read == 10
    assert telemetry.values["prediction_log_spool_bytes"] > 0
