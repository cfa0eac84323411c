"""What every ``WindowLog`` gives back of what a ``PredictionStore`` wrote."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import asyncpg
import pytest
from traffic.spooled_rows import a_row, no_threshold

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.prediction_log.row import COLUMNS, PredictionRow, Status
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.windows.builder import WindowBuilder
from understudy.core.windows.window import Window, window_to_json
from understudy.ports.monitoring.window_log import (
    BLOCK_SECONDS,
    MARKED_SECONDS,
    STEP_SECONDS,
    WindowLog,
    window_block_start,
)
from understudy.ports.prediction_log.prediction_log import PredictionStore, SpooledBatch, WriteOutcome

BEGAN = 1_763_661_000


@dataclass
class Opened:
    store: PredictionStore
    log: WindowLog
    builder: WindowBuilder
    end: int = 0

    async def ship(self, rollout_id: int, at: float, calls: int, errors: int = 0) -> None:
        """Write rows of one moment and their windows."""
        await self.ship_rows(
            [
                a_row(self.end + number)._replace(
                    predicted_at=at, rollout_id=rollout_id, status=Status.TIMEOUT if number < errors else Status.OK
                )
                for number in range(calls)
            ]
        )

    async def ship_rows(self, given: Sequence[PredictionRow]) -> None:
        """Write rows and their windows as the shipper does."""
        rows = [encode_line(row) for row in given]
        staged = self.builder.stage(rows, COLUMNS, no_threshold)
        batch = SpooledBatch("00000000-0000-4000-8000-000000000001", 1, self.end, self.end + len(rows), rows)
        assert (await self.store.write(batch, staged.windows)).outcome is WriteOutcome.WRITTEN
        self.builder.commit(staged)
        self.end += len(rows)


@pytest.fixture(params=["twin", "postgres"])
def postgres_url(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("database_url") if request.param == "postgres" else None


@pytest.fixture
async def opened(postgres_url: str | None) -> AsyncIterator[Opened]:
    if postgres_url is None:
        twin = MemoryPredictionStore()
        yield Opened(twin, twin, WindowBuilder("here"))
        return
    database = await asyncpg.connect(postgres_url, timeout=10)
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}')"
    )
    database.terminate()
    store = PostgresPredictionStore(postgres_url, timeout_seconds=5)
    yield Opened(store, PostgresWindowLog(postgres_url, timeout_seconds=5), WindowBuilder("here"))
    await store.close()


def texts(windows: "list[Window]") -> list[tuple[int, str]]:
    return [(window.key.start, window_to_json(window)) for window in windows]


async def test_a_window_is_given_back_as_it_was_added_up_over_several_batches(opened):
    await opened.ship(7, BEGAN, calls=3, errors=1)
    await opened.ship(7, BEGAN + 14, calls=2)
    await opened.ship(7, BEGAN + 15, calls=1)

    windows = await opened.log.of_rollout(7)

    assert [(w.key.start, w.calls, w.errors, w.answered) for w in windows] == [(BEGAN, 5, 1, 4), (BEGAN + 15, 1, 0, 1)]
    assert texts(windows) == texts(await opened.log.of_versions([1], BEGAN, BEGAN + 16))


async def test_calls_that_callers_deadlines_took_away_are_given_back_with_their_window(opened):
    rows = [
        a_row(number)._replace(rollout_id=7, predicted_at=BEGAN + 0.5, status=status, deadline_us=1_000)
        for number, status in enumerate((Status.OK, Status.TIMEOUT))
    ]

    await opened.ship_rows(rows)

    (window,) = await opened.log.of_rollout(7)
    assert (window.volume, window.calls, window.hurried_calls, window.hurried_errors) == (2, 0, 2, 1)


async def test_windows_of_other_rollouts_versions_and_times_are_left_out(opened):
    await opened.ship(7, BEGAN, calls=1)
    await opened.ship(8, BEGAN + 15, calls=1)

    assert [w.key.rollout_id for w in await opened.log.of_rollout(8)] == [8]
    assert await opened.log.of_rollout(9) == []
    assert await opened.log.of_versions([2], 0, 2 * BEGAN) == []
    assert [w.key.rollout_id for w in await opened.log.of_versions([1], BEGAN, BEGAN + 15)] == [7]


async def test_the_latest_windows_of_a_rollout_are_given_back_alone(opened):
    for place in range(3):
        await opened.ship(7, BEGAN + 15 * place, calls=1)

    windows = await opened.log.of_rollout(7, BEGAN + 15)
    between = await opened.log.of_rollout(7, BEGAN, BEGAN + 30)

    assert [window.key.start for window in windows] == [BEGAN + 15, BEGAN + 30]
    assert [window.key.start for window in between] == [BEGAN, BEGAN + 15]


async def test_latest_windows_are_read_anew_where_their_rows_have_changed_and_nowhere_else(opened):
    await opened.ship(7, BEGAN, calls=3)
    await opened.ship(7, BEGAN + 15, calls=3)
    before = (await opened.log.latest_of_rollout(7, 0, 0)).windows
    await opened.ship(7, BEGAN + 16, calls=2)

    again = (await opened.log.latest_of_rollout(7, 0, 0)).windows

    assert [window.calls for window in again] == [3, 5]
    if isinstance(opened.log, PostgresWindowLog):  # a twin has nothing to parse
        assert [one is other for one, other in zip(before, again, strict=True)] == [True, False]


async def test_windows_come_without_slices_and_slices_without_what_they_are_not_compared_by(opened):
    await opened.ship_rows([a_row(0)._replace(rollout_id=7, predicted_at=BEGAN, slices=b'{"category":"gold"}')])

    (alone,) = await opened.log.slices_of_rollout(7, BEGAN, BEGAN + 15)
    latest = await opened.log.latest_of_rollout(7, 0, window_block_start(BEGAN))
    without = [*await opened.log.of_rollout(7), *await opened.log.of_versions([1], 0, 2 * BEGAN), *latest.windows]

    assert [(window.calls, window.slices, int(window.buckets[:, 0].sum())) for window in without] == [(1, {}, 1)] * 3
    assert (list(alone.slices), alone.calls) == ([Slice("category", "gold")], 1)
    assert alone.slices[Slice("category", "gold")][:, 0].sum() == 1
    assert (alone.log_latency, alone.buckets.any(), alone.latencies.counts) == (without[0].log_latency, False, {})
    assert await opened.log.slices_of_rollout(7, BEGAN + 15, BEGAN + 30) == []


BLOCK = window_block_start(BEGAN)


async def test_the_mark_of_a_block_changes_with_what_is_written_in_it_and_with_nothing_else(opened):
    settled = BLOCK + 2 * BLOCK_SECONDS
    await opened.ship(7, BLOCK, calls=2)
    await opened.ship(7, BLOCK + BLOCK_SECONDS, calls=2)
    first = await opened.log.latest_of_rollout(7, 0, settled)

    await opened.ship(7, settled, calls=1)
    await opened.ship(8, BLOCK, calls=1)
    later = await opened.log.latest_of_rollout(7, 0, settled)
    await opened.ship(7, BLOCK + 15, calls=1)
    late = await opened.log.latest_of_rollout(7, 0, settled)

    assert first.marks == later.marks
    assert list(later.marks.marks) == [BLOCK, BLOCK + BLOCK_SECONDS]
    assert late.marks.marks[BLOCK] != later.marks.marks[BLOCK]
    assert late.marks.marks[BLOCK + BLOCK_SECONDS] == later.marks.marks[BLOCK + BLOCK_SECONDS]
    assert [[window.key.start for window in latest.windows] for latest in (first, late)] == [[], [settled]]


async def test_of_the_block_that_grows_each_minute_has_a_mark_and_of_those_before_the_whole(opened):
    settled = BLOCK + BLOCK_SECONDS + 3 * STEP_SECONDS
    growing = BLOCK + BLOCK_SECONDS
    for start in (BLOCK, BLOCK + 2 * STEP_SECONDS, growing, growing + STEP_SECONDS, growing + STEP_SECONDS + 45):
        await opened.ship(7, start, calls=2)
    first = (await opened.log.latest_of_rollout(7, 0, settled)).marks

    await opened.ship(7, growing + STEP_SECONDS + 15, calls=1)
    later = (await opened.log.latest_of_rollout(7, 0, settled)).marks
    at_the_end = (await opened.log.latest_of_rollout(7, 0, growing + BLOCK_SECONDS)).marks

    assert sorted(first.marks) == [BLOCK, growing, growing + STEP_SECONDS]
    assert [start for start, mark in later.marks.items() if mark != first.marks[start]] == [growing + STEP_SECONDS]
    assert at_the_end.marks.keys() == {BLOCK, growing}
    assert (await opened.log.marks_of_rollout(7, 0, settled)).marks == at_the_end.marks


async def test_marks_are_of_a_day_at_most_from_the_first_window_on(opened):
    for start in (BLOCK, BLOCK + MARKED_SECONDS - 15, BLOCK + MARKED_SECONDS, BLOCK + 2 * MARKED_SECONDS):
        await opened.ship(7, start, calls=1)
    settled = BLOCK + 2 * MARKED_SECONDS

    first = await opened.log.latest_of_rollout(7, 0, settled)
    second = await opened.log.latest_of_rollout(7, first.marks.until, settled)
    alone = await opened.log.marks_of_rollout(7, 0, BLOCK + MARKED_SECONDS)
    none = await opened.log.marks_of_rollout(7, BLOCK + 2 * MARKED_SECONDS + BLOCK_SECONDS, 2 * BEGAN)

    assert (list(first.marks.marks), first.marks.until) == (
        [BLOCK, BLOCK + MARKED_SECONDS - BLOCK_SECONDS],
        BLOCK + MARKED_SECONDS,
    )
    assert (list(second.marks.marks), second.marks.until) == ([BLOCK + MARKED_SECONDS], settled)
    assert ([*first.windows], [window.key.start for window in second.windows]) == ([], [settled])
    assert alone == first.marks
    assert none == ({}, 2 * BEGAN)


async def test_old_windows_are_forgotten_a_bounded_number_at_a_time(opened):
    for minute in range(4):
        await opened.ship(0, BEGAN + 60 * minute, calls=1)

    deleted = [await opened.log.forget(BEGAN + 150, 2) for _ in range(3)]

    assert deleted == [2, 1, 0]
    assert [w.key.start for w in await opened.log.of_versions([1], 0, 2 * BEGAN)] == [BEGAN + 180]


ADD = """
    INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation, shipper, calls,
                                  errors, counts) VALUES ($1, to_timestamp($2), $3, 7, 1, $4, 1, 0, $5)
"""


async def test_slices_that_cannot_be_read_are_left_out_by_their_reader_alone(database, database_url):
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )
    await database.execute("DROP TRIGGER IF EXISTS predictionwindow_readable ON PredictionWindow")
    for shipper, counts in (("evil", '{"calls": 1, "slices": [["a", "b", 99]]}'), ("odd", "[1]"), ("good", "{}")):
        await database.execute(ADD, version, BEGAN, "challenger", shipper, counts)
    left_out: list[tuple[str, int]] = []
    log = PostgresWindowLog(database_url, timeout_seconds=5, on_unusable=lambda *told: left_out.append(told))

    slices, windows = await log.slices_of_rollout(7, 0, 2 * BEGAN), await log.of_rollout(7)

    assert [window.key.shipper for window in slices] == ["good"]
    assert [window.key.shipper for window in windows] == ["evil", "good"]
    assert left_out == [("PredictionWindow", 2), ("PredictionWindow", 1)]


@pytest.mark.parametrize("counts", ['"x"', "[1, 2]", '{"volume": "zz"}', '{"volume": -1}', '{"scores": ["a", "b"]}'])
async def test_a_row_that_is_no_window_is_left_out_and_stops_no_reader(database, database_url, counts):
    version = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}') RETURNING id"
    )
    # As a row of before migration 0016, which refuses most of them.
    await database.execute("DROP TRIGGER IF EXISTS predictionwindow_readable ON PredictionWindow")
    await database.execute(ADD, version, BEGAN, "challenger", "evil", counts)
    await database.execute(ADD, version, BEGAN, "boss", "evil", "{}")
    await database.execute(ADD, version, BEGAN, "challenger", "good", '{"volume": 3, "calls": 3}')
    left_out: list[tuple[str, int]] = []
    log = PostgresWindowLog(database_url, timeout_seconds=5, on_unusable=lambda *told: left_out.append(told))

    of_rollout = await log.of_rollout(7)
    of_versions = await log.of_versions([version], 0, 2 * BEGAN)
    latest = await log.latest_of_rollout(7, 0, window_block_start(BEGAN))

    for windows in (of_rollout, of_versions, latest.windows):
        assert [(window.key.shipper, window.volume) for window in windows] == [("good", 3)]
    assert left_out == [("PredictionWindow", 2)] * 3
