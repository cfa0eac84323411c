"""What every ``PredictionStore`` does; the twin refuses what Postgres refuses in these tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import pytest
from traffic.spooled_rows import a_prediction_id, a_row, ids_in

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.core.prediction_log.spool_format import FRAME_BYTES
from understudy.ports.prediction_log.prediction_log import PredictionStore, SpooledBatch, WriteOutcome

SPOOL = "0b0e6f4e-0000-4000-8000-000000000001"
NUL = b'"\\u0000"'


@dataclass(frozen=True)
class Opened:
    """A store, and what lies in it."""

    store: PredictionStore
    ids: Callable[[], Awaitable[list[str]]]
    dead_letters: Callable[[], Awaitable[list[tuple[bytes, str]]]]


def opened_twin() -> Opened:
    store = MemoryPredictionStore(lambda row: "22P05 unsupported Unicode escape" if b"u0000" in row else None)

    async def ids() -> list[str]:
        return ids_in(store.rows)

    async def dead_letters() -> list[tuple[bytes, str]]:
        return [(letter.row, letter.why) for letter in store.dead_letters]

    return Opened(store, ids, dead_letters)


async def opened_postgres(database: asyncpg.Connection, url: str) -> Opened:
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('visits', '1', 's3://models/visits/1', 'sklearn', '{}')"
    )

    async def ids() -> list[str]:
        return [str(row[0]) for row in await database.fetch("SELECT prediction_id FROM PredictionLog ORDER BY id")]

    async def dead_letters() -> list[tuple[bytes, str]]:
        return [tuple(row) for row in await database.fetch('SELECT "row", why FROM PredictionDeadLetter ORDER BY id')]

    return Opened(PostgresPredictionStore(url, timeout_seconds=5.0), ids, dead_letters)


@pytest.fixture(params=["twin", "postgres"])
def postgres_url(request: pytest.FixtureRequest) -> str | None:
    """Where the real store writes; ``None`` for the twin. Not async, because it starts async fixtures."""
    return request.getfixturevalue("database_url") if request.param == "postgres" else None


@pytest.fixture
async def opened(postgres_url: str | None) -> AsyncIterator[Opened]:
    if postgres_url is None:
        yield opened_twin()
        return
    database = await asyncpg.connect(postgres_url, timeout=10, command_timeout=30)
    parts = await opened_postgres(database, postgres_url)
    yield parts
    await parts.store.close()
    database.terminate()


def a_batch(start: int, *numbers: int, segment: int = 1, prediction: bytes = b"1") -> SpooledBatch:
    rows = [encode_line(a_row(number, prediction=prediction)) for number in numbers]
    end = start + sum(FRAME_BYTES + len(row) for row in rows)
    return SpooledBatch(SPOOL, segment, start, end, rows)


async def test_a_new_spool_is_committed_up_to_its_beginning(opened):
    assert await opened.store.committed(SPOOL) == (0, 0)


async def test_rows_and_offset_are_written_together(opened):
    batch = a_batch(0, 1, 2, 3)

    result = await opened.store.write(batch)

    assert result.outcome is WriteOutcome.WRITTEN
    assert await opened.ids() == [a_prediction_id(number) for number in (1, 2, 3)]
    assert await opened.store.committed(SPOOL) == (1, batch.end)


async def test_the_same_batch_again_writes_nothing(opened):
    batch = a_batch(0, 1, 2)
    await opened.store.write(batch)

    again = await opened.store.write(batch)

    assert again.outcome is WriteOutcome.OFFSET_MOVED
    assert await opened.ids() == [a_prediction_id(1), a_prediction_id(2)]
    assert await opened.store.committed(SPOOL) == (1, batch.end)


async def test_a_batch_that_would_leave_a_gap_writes_nothing(opened):
    first = a_batch(0, 1)
    await opened.store.write(first)

    for wrong in (a_batch(first.end + 1, 2), a_batch(5, 2, segment=2), a_batch(0, 2, segment=0)):
        assert (await opened.store.write(wrong)).outcome is WriteOutcome.OFFSET_MOVED

    assert await opened.ids() == [a_prediction_id(1)]


async def test_a_new_spool_begins_at_the_beginning_of_a_segment(opened):
    result = await opened.store.write(a_batch(700, 1))

    assert result.outcome is WriteOutcome.OFFSET_MOVED
    assert await opened.ids() == []


async def test_the_beginning_of_a_later_segment_follows_the_one_before(opened):
    first = a_batch(0, 1, segment=3)
    await opened.store.write(first)

    result = await opened.store.write(a_batch(0, 2, segment=5))

    assert result.outcome is WriteOutcome.WRITTEN
    assert await opened.ids() == [a_prediction_id(1), a_prediction_id(2)]


async def test_a_batch_with_one_poison_row_writes_nothing_and_says_why(opened):
    good, poison = a_batch(0, 1), a_batch(0, 2, prediction=NUL)
    batch = SpooledBatch(SPOOL, 1, 0, 1_000, [*good.rows, *poison.rows])

    result = await opened.store.write(batch)

    assert result.outcome is WriteOutcome.REJECTED
    assert "22P05" in result.why
    assert await opened.ids() == []
    assert await opened.store.committed(SPOOL) == (0, 0)


async def test_a_rejected_row_is_kept_with_its_reason_and_passed_once(opened):
    poison = a_batch(0, 1, prediction=NUL)

    outcomes = [await opened.store.reject(poison, "why\0not") for _ in range(2)]

    assert outcomes == [WriteOutcome.WRITTEN, WriteOutcome.OFFSET_MOVED]
    assert [row for row, _ in await opened.dead_letters()] == [poison.rows[0]]
    assert await opened.store.committed(SPOOL) == (1, poison.end)
    assert (await opened.store.write(a_batch(poison.end, 2))).outcome is WriteOutcome.WRITTEN


async def test_spools_do_not_disturb_each_other(opened):
    other = "0b0e6f4e-0000-4000-8000-000000000002"
    batch = a_batch(0, 1)

    await opened.store.write(batch)
    await opened.store.write(a_batch(0, 2)._replace(spool_id=other))

    assert await opened.ids() == [a_prediction_id(1), a_prediction_id(2)]
    assert await opened.store.committed(SPOOL) == (1, batch.end)
