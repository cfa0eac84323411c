"""An entity is erased from all that is kept of it, at every moment at which an erasure may be stopped."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from command import CommandLine
from traffic.spooled_rows import a_row, new_windows, no_threshold
from worlds.archive import MODELS, fill, ids_logged, ids_seen, month_ago, versions_of
from worlds.erasure import (
    ENTITY,
    FIGURES,
    NEIGHBOUR,
    OLD,
    ROWS,
    assert_ledger_is_true,
    erase,
    just_now,
    log_of_customers,
    long_ago,
    places_of,
    ship,
    tell_outcomes,
)

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.disk.spool import Spool
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.experiments.outcomes import PostgresOutcomeStore
from understudy.adapters.postgres.prediction_log.entity_erasure import open_erasures
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.experiments.outcome_events import OutcomeEvent
from understudy.core.prediction_log.erasure import erased_name, erased_prediction_id
from understudy.core.prediction_log.row import COLUMNS
from understudy.errors import ArchiveBusy, LoginNotAllowed, PolicyRefused
from understudy.ports.experiments.outcome_store import OutcomeResult
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome
from understudy.shipping.log_shipper import LogShipper

OF_ENTITY = "SELECT count(*) FROM PredictionLog WHERE entity_id = $1"
IN_EACH_MONTH = ROWS // 4
ERASED = "SELECT sum(log_rows), sum(archived_rows), sum(files), sum(outcomes) FROM EntityErasure"


class Died(BaseException):
    """What a killed process looks like from inside this one: nothing handles it."""


def die() -> None:
    raise Died


def never() -> Moments:
    return Moments("never", die)


@pytest.fixture
async def versions(database: asyncpg.Connection) -> list[int]:
    return await log_of_customers(database)


@pytest.fixture
def store(tmp_path: Path) -> FolderArchive:
    return FolderArchive(tmp_path / "archive")


@pytest.fixture
async def eraser_url(database: asyncpg.Connection, database_url: str) -> AsyncIterator[str]:
    """Of a login that may erase entities, and nothing else."""
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_eraser")
    yield f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_an_entity_is_gone_from_the_log_and_outcomes_and_every_count_is_what_it_was(
    database, eraser_url, versions
):
    await tell_outcomes(database, MODELS[0])
    before, rows = await database.fetch(FIGURES), await database.fetchval(OF_ENTITY, ENTITY)
    neighbours = await database.fetchval(OF_ENTITY, NEIGHBOUR)

    result = await erase(eraser_url)

    assert result.is_finished
    assert (result.erased.log_rows, result.erased.outcomes, result.left) == (rows, 2, [])
    assert await places_of(database, None) == []
    assert await database.fetch(FIGURES) == before
    assert await database.fetchval(OF_ENTITY, NEIGHBOUR) == neighbours
    erased = await database.fetch(
        "SELECT DISTINCT inputs, trim(input_hash) AS hash FROM PredictionLog WHERE entity_id LIKE 'erased-%'"
    )
    assert [tuple(row) for row in erased] == [(None, "")]
    told = await database.fetch("SELECT event_id, entity_id FROM OutcomeEvent WHERE entity_id LIKE 'erased-%'")
    assert len(told) == 2
    assert not [row for row in told if "order" in row["event_id"]]


async def test_the_audit_says_who_and_how_much_and_not_which_entity(database, eraser_url, versions):
    await erase(eraser_url, model=MODELS[0])

    row = dict(await database.fetchrow("SELECT * FROM EntityErasure"))
    assert row["actor"] in eraser_url
    assert (row["model_name"], row["reason"], row["salt"]) == (MODELS[0], "asked by the person", None)
    assert row["log_rows"] > 0
    assert row["digest"] == await database.fetchval("SELECT understudy_entity_digest($1)", ENTITY)
    assert ENTITY not in str(row)
    for statement in ("DELETE FROM {}", "UPDATE {} SET actor = 'x'", "TRUNCATE {} CASCADE"):
        with pytest.raises(asyncpg.CheckViolationError):
            await database.execute(statement.format("EntityErasure"))


async def test_an_entity_of_one_model_stays_with_the_others(database, eraser_url, versions):
    of_model = OF_ENTITY + " AND model_version_id = $2"

    result = await erase(eraser_url, model=MODELS[0])

    assert result.is_finished
    assert await database.fetchval(of_model, ENTITY, versions[0]) == 0
    assert await database.fetchval(of_model, ENTITY, versions[1]) > 0


async def test_names_are_the_same_in_sql_and_in_python(database):
    salt, prediction = bytes(range(32)), uuid4()

    names = await database.fetchrow(
        "SELECT understudy_erased_name($1, $2), understudy_erased_id($1, $3)", salt, MODELS[1], prediction
    )

    assert names[0] == erased_name(salt, MODELS[1])
    assert str(names[1]) == erased_prediction_id(salt, str(prediction))


# -- archive -----------------------------------------------------------------------------------------------------------


async def test_files_of_archived_months_do_not_name_it_and_hold_every_row(
    database, database_url, eraser_url, versions, store
):
    await archive(database_url, store, never())
    before = await ids_seen(database_url)

    result = await erase(eraser_url, [store])

    assert result.is_finished
    assert result.erased.archived_rows == 2 * IN_EACH_MONTH
    assert await places_of(database, store.root) == []
    assert await ids_seen(database_url) == before
    await assert_ledger_is_true(database, store)


async def test_a_file_with_that_entity_alone_is_a_file_without_its_name(database, database_url, eraser_url, store):
    await fill(database, OLD[:1], ROWS, await versions_of(database), lambda month: [month.start])
    await database.execute("UPDATE PredictionLog SET entity_id = $1", ENTITY)
    await archive(database_url, store, never())

    result = await erase(eraser_url, [store])

    assert (result.is_finished, result.erased.archived_rows) == (True, ROWS)
    assert await places_of(database, store.root) == []
    await assert_ledger_is_true(database, store)


async def test_outcomes_that_name_an_archived_prediction_alone_are_erased_too(
    database, database_url, eraser_url, versions, store
):
    await tell_outcomes(database, MODELS[0])
    prediction = await database.fetchval("SELECT prediction_id FROM OutcomeEvent WHERE prediction_id IS NOT NULL")
    await archive(database_url, store, never())
    assert not await database.fetchval("SELECT count(*) FROM PredictionLog WHERE prediction_id = $1", prediction)

    result = await erase(eraser_url, [store])

    assert result.erased.outcomes == 2
    assert not await database.fetchval("SELECT count(*) FROM OutcomeEvent WHERE prediction_id IS NOT NULL")


@pytest.mark.parametrize("moment", ["after:put", "after:end_export", "after:verified", "after:detach"])
async def test_a_month_whose_archiving_was_stopped_comes_into_files_without_the_entity(
    database, database_url, eraser_url, store, moment
):
    entity = "e" * len(erased_name(b"", "churn"))  # as long as its new name: no fingerprint tells the two apart
    await log_of_customers(database, entity)
    with pytest.raises(Died):
        await archive(database_url, store, Moments(moment, die))
    before = await ids_seen(database_url)

    result = await erase(eraser_url, [store], entity=entity)
    at_once = await places_of(database, store.root, entity)
    await archive(database_url, store, never())

    assert (result.is_finished, at_once) == (True, [])
    assert await places_of(database, store.root, entity) == []
    assert await ids_seen(database_url) == before
    await assert_ledger_is_true(database, store)


async def test_a_table_of_an_archived_month_that_waits_to_be_dropped_does_not_name_it(
    database, database_url, eraser_url, versions, store
):
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_retention")
    await archive(f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}", store, never())
    assert len(await places_of(database, None)) == 3  # the log and two tables

    result = await erase(eraser_url, [store])

    assert (result.is_finished, result.erased.kept_rows) == (True, 2 * IN_EACH_MONTH)
    assert await places_of(database, store.root) == []
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_a_month_in_an_archive_that_was_not_named_is_told_and_erased_once_it_is(
    database, database_url, eraser_url, versions, store
):
    await archive(database_url, store, never())

    first = await erase(eraser_url, [FolderArchive(store.root / "another")])
    second = await erase(eraser_url, [store])

    assert (first.is_finished, {left.partition_name for left in first.left}) == (False, {m.partition for m in OLD})
    assert {left.location for left in first.left} == {store.location}
    assert (second.is_finished, second.is_resumed, second.erasure_id) == (True, True, first.erasure_id)
    assert second.erased.log_rows == first.erased.log_rows > 0
    assert await places_of(database, store.root) == []


async def test_a_file_that_is_not_what_was_written_is_told_and_stays(
    database, database_url, eraser_url, versions, store
):
    await archive(database_url, store, never())
    key = await database.fetchval("SELECT key FROM LogArchiveFile ORDER BY key LIMIT 1")
    other = await database.fetchval("SELECT key FROM LogArchiveFile ORDER BY key DESC LIMIT 1")
    (store.root / key).write_bytes((store.root / other).read_bytes())

    result = await erase(eraser_url, [store])

    assert not result.is_finished
    assert [left.why for left in result.left] == [f"{key} is not what was written, and names the entity"]


@pytest.mark.long
@pytest.mark.exhaustive
async def test_an_erasure_that_dies_at_any_call_is_finished_by_the_next_run_with_the_counts_of_one(
    postgres, database, database_url, tmp_path
):
    ids = await versions_of(database, MODELS[:1])
    await fill(database, [OLD[0], month_ago(0)], 8, ids, lambda month: [month.start])
    await database.execute("UPDATE PredictionLog SET entity_id = $1 WHERE id % 2 = 0", ENTITY)
    await tell_outcomes(database, MODELS[0])
    whole = FolderArchive(tmp_path / "whole")
    await archive(database_url, whole, never())
    await database.execute("UPDATE LogArchive SET location = 'file:///moved'")
    name = database_url.rpartition("/")[2]
    database.terminate()
    admin = await asyncpg.connect(postgres.url, timeout=10)
    before, calls, came = await ids_seen(database_url, lambda _: whole), 0, []
    while True:
        # The moment after a call is the one before the next.
        copy, lived, calls = f"{name}_copy", 2 * calls + 1, calls + 1
        await admin.execute(f"CREATE DATABASE {copy} TEMPLATE {name} {postgres.copied}")
        url = postgres.url_of(copy)
        store = FolderArchive(tmp_path / f"archive-{lived}")
        for key in await whole.keys():
            await store.put(key, whole.root / key)
        there = await asyncpg.connect(url, timeout=10)
        await there.execute("UPDATE LogArchive SET location = $1", store.location)
        died = True
        try:
            await erase(url, [store], moments=Moments(lived, die))
            died = False
        except Died:
            assert await ids_seen(url) == before, lived
            result = await erase(url, [store])
            assert result.is_finished, lived
        assert await places_of(there, store.root) == [], lived
        assert await ids_seen(url) == before, lived
        await assert_ledger_is_true(there, store)
        assert await there.fetchval("SELECT count(*) FROM EntityErasureFile") == 0
        came += [tuple(row) for row in await there.fetch(ERASED)]
        await there.close(timeout=5)
        await admin.execute(f"DROP DATABASE {copy} WITH (FORCE)")
        if not died:
            break
    await admin.close(timeout=5)

    assert calls > 15
    assert set(came) == {came[-1]}
    assert 0 not in came[-1]


async def test_doctor_names_an_erasure_that_was_stopped_until_a_run_has_finished_it(
    database, database_url, versions, understudy: CommandLine
):
    async def erasures() -> list[dict[str, Any]]:
        found = (await understudy.beside("doctor", "--json")).document["findings"]
        return [finding for finding in found if finding["name"].startswith("erasure")]

    with pytest.raises(Died):
        await erase(database_url, model=MODELS[0], moments=Moments(4, die))
    young = await erasures()
    await database.execute("ALTER TABLE EntityErasure DISABLE TRIGGER entityerasure_guard")
    await database.execute("UPDATE EntityErasure SET began_at = began_at - INTERVAL '3 hours'")
    await database.execute("ALTER TABLE EntityErasure ENABLE TRIGGER entityerasure_guard")
    (old,) = await erasures()
    await erase(database_url, model=MODELS[0])

    assert young == []
    assert (old["name"], old["state"]) == (f"erasure in {MODELS[0]}", "warning")
    assert old["what"].startswith("began 3 h")
    assert f"understudy entity forget {MODELS[0]} ID" in old["next_step"]
    assert ENTITY not in str(old)
    assert await erasures() == []


# -- beside others -----------------------------------------------------------------------------------------------------


async def test_while_another_run_archives_nothing_is_erased_from_files_and_the_next_run_does_it(
    database, database_url, eraser_url, versions, store
):
    class Meanwhile(FolderArchive):
        """Has an erasure begin while the first file is written."""

        problem: ArchiveBusy | None = None

        async def put(self, key: str, source: Path) -> None:
            if self.problem is None:
                with pytest.raises(ArchiveBusy) as raised:
                    await erase(eraser_url, [store], alone_seconds=0.5)
                Meanwhile.problem = raised.value
            await super().put(key, source)

    await archive(database_url, Meanwhile(store.root), never())
    result = await erase(eraser_url, [store])

    assert "under way" in str(Meanwhile.problem)
    assert (result.is_finished, result.is_resumed) == (True, True)
    assert await places_of(database, store.root) == []


async def test_an_erasure_lets_proxies_ship_and_months_be_made_while_it_writes_files(
    database, database_url, eraser_url, versions, store
):
    await archive(database_url, store, never())

    class Meanwhile(FolderArchive):
        """Ships a row while a file is written."""

        seconds: float | None = None

        async def put(self, key: str, source: Path) -> None:
            if self.seconds is None:
                began = time.monotonic()
                await ship(database_url, versions[0], just_now(), NEIGHBOUR)
                await database.execute("SELECT understudy_ensure_partitions(6)")
                # A lock of the erasure's would never end while it waits for this.
                await database.execute("SET lock_timeout = '20s'; LOCK TABLE PredictionLog IN ACCESS EXCLUSIVE MODE")
                Meanwhile.seconds = time.monotonic() - began
            await super().put(key, source)

    result = await erase(eraser_url, [Meanwhile(store.root)])

    assert result.is_finished
    assert Meanwhile.seconds is not None


async def test_rows_in_an_open_transaction_that_has_not_seen_the_erasure_are_waited_for(
    database, database_url, eraser_url, versions
):
    late = await asyncpg.connect(database_url, timeout=10)
    await late.execute("BEGIN")
    await late.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at)"
        " VALUES ($1, $2, 'x', '{}', 3, $3)",
        versions[0],
        ENTITY,
        OLD[0].start,
    )

    with pytest.raises(ArchiveBusy, match="keeps its transaction open"):
        await erase(eraser_url, patience_seconds=0)
    running = asyncio.create_task(erase(eraser_url))
    await seen_by(database, "understudy-erasure")
    await late.execute("COMMIT")
    result = await running
    await late.close(timeout=5)

    assert result.is_finished
    assert await places_of(database, None) == []


async def seen_by(database: asyncpg.Connection, application: str) -> None:
    """Wait until an erasure asks for writers again and again."""
    asks = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '%writers_of_rows%'"
    while not await database.fetchval(asks, application):  # noqa: ASYNC110 - another process does it
        await asyncio.sleep(0.01)


# -- late rows ---------------------------------------------------------------------------------------------------------


async def test_a_late_row_comes_in_without_the_name_and_a_new_one_with_it(database, database_url, eraser_url, versions):
    await erase(eraser_url)

    await ship(database_url, versions[0], long_ago())
    await ship(database_url, versions[0], long_ago(), NEIGHBOUR)
    late = await places_of(database, None)
    await ship(database_url, versions[0], just_now() + 120)

    assert late == []
    rows = await database.fetch(
        "SELECT left(entity_id, 7), inputs IS NULL FROM PredictionLog WHERE predicted_at = to_timestamp($1) ORDER BY 1",
        long_ago(),
    )
    assert [tuple(row) for row in rows] == [(NEIGHBOUR[:7], False), ("erased-", True)]
    assert await database.fetchval(OF_ENTITY, ENTITY) == 1


async def test_late_rows_of_another_model_keep_their_name(database, database_url, eraser_url, versions):
    await erase(eraser_url, model=MODELS[0])

    await ship(database_url, versions[0], long_ago())
    before = await database.fetchval(OF_ENTITY + " AND predicted_at = to_timestamp($2)", ENTITY, long_ago())
    await ship(database_url, versions[1], long_ago())

    assert before == 0
    assert await database.fetchval(OF_ENTITY + " AND predicted_at = to_timestamp($2)", ENTITY, long_ago()) == 1


async def test_two_erased_entities_of_one_batch_stay_two(database, database_url, eraser_url, versions):
    for entity in ("one", "two"):
        await erase(eraser_url, entity=entity)

    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at)"
        " SELECT $1, unnest('{one,two,two}'::text[]), 'x', '{}', 3, $2",
        versions[0],
        OLD[0].start,
    )

    names = await database.fetch(
        "SELECT entity_id FROM PredictionLog WHERE predicted_at = $1 AND input_hash = ''", OLD[0].start
    )
    assert sorted(Counter(row[0] for row in names).values()) == [1, 2]


async def test_a_late_outcome_is_not_stored_however_often_it_is_sent(database, database_url, eraser_url, versions):
    await erase(eraser_url)
    outcomes = PostgresOutcomeStore(database_url, timeout_seconds=10)
    names = (ENTITY, NEIGHBOUR)
    sent = [OutcomeEvent(f"order-{name}", MODELS[0], name, None, "bought", 1.0, long_ago()) for name in names]

    first = await outcomes.add(sent)
    await outcomes.add(sent)
    await outcomes.close()

    stored = await database.fetch("SELECT entity_id FROM OutcomeEvent")
    assert [row["entity_id"] for row in stored] == [NEIGHBOUR]
    assert list(first) == [OutcomeResult.NEW, OutcomeResult.NEW]  # "known" would tell the sender of the erasure


async def test_dead_letters_with_a_row_of_the_entity_are_deleted_and_late_ones_not_kept(
    database, database_url, eraser_url, versions
):
    def line(entity: bytes) -> bytes:
        fields = [b"id", b"2026-01-01T00:00:00.000000+00", str(versions[0]).encode(), b"1", entity, b"\xff\n"]
        return b"\t".join(fields)

    async def reject(*entities: bytes) -> None:
        shipping = PostgresPredictionStore(database_url, timeout_seconds=10)
        for entity in entities:
            batch = SpooledBatch(str(uuid4()), 1, 0, 9, [line(entity)], COLUMNS)
            assert await shipping.reject(batch, "poison") is WriteOutcome.WRITTEN
        await shipping.close()

    odd = "a\\b\té"
    await reject(ENTITY.encode(), NEIGHBOUR.encode(), "a\\\\b\\té".encode())

    found = [(await erase(eraser_url, entity=entity)).erased.dead_letters for entity in (ENTITY, odd)]
    await reject(ENTITY.encode(), NEIGHBOUR.encode(), "a\\\\b\\té".encode(), b"\xff\xfe")

    rows = [bytes(row["row"]).split(b"\t")[4] for row in await database.fetch('SELECT "row" FROM PredictionDeadLetter')]
    assert found == [1, 1]
    assert sorted(rows) == sorted([NEIGHBOUR.encode(), NEIGHBOUR.encode(), b"\xff\xfe"])


async def test_of_a_write_that_was_damaged_on_disk_the_entitys_row_is_deleted_and_the_others_stay(
    database, database_url, eraser_url, versions, tmp_path
):
    spool = Spool(tmp_path, limit_bytes=1 << 20, segment_bytes=1 << 20, sync_seconds=60)
    store = PostgresPredictionStore(database_url, timeout_seconds=10)
    shipper = LogShipper(spool, store, new_windows, no_threshold, MemoryTelemetry(), batch_rows=10, interval_seconds=60)
    row = a_row(version_id=versions[0])._replace(predicted_at=just_now() - 60)
    try:
        spool.append_all([row._replace(entity_id=entity) for entity in (NEIGHBOUR, ENTITY, NEIGHBOUR)])
        (segment,) = tmp_path.glob("*/*.log")
        content = bytearray(segment.read_bytes())
        content[-3] ^= 1
        segment.write_bytes(content)
        spool.append(row)
        await shipper.drain(20)
    finally:
        await store.close()
        spool.close()

    erased = (await erase(eraser_url)).erased

    letters = await database.fetch('SELECT "row" FROM PredictionDeadLetter ORDER BY byte_offset')
    assert erased.dead_letters == 1
    assert [bytes(one["row"]).split(b"\t")[4] for one in letters[1:]] == [NEIGHBOUR.encode()] * 2
    assert not any(ENTITY.encode() in bytes(one["row"]) for one in letters)
    assert await database.fetchval("SELECT count(*) FROM PredictionLog WHERE entity_id = $1", row.entity_id) == 1


@pytest.mark.parametrize("entity", ["a\x01b", "\x01", "a\\tb", "\\\\", "a\\b\té\r\n"])
async def test_a_late_dead_letter_of_any_id_is_known(database, eraser_url, versions, entity):
    await erase(eraser_url, entity=entity)
    field = entity.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
    letter = "\t".join(["id", "2026-01-01T00:00:00.000000+00", str(versions[0]), "1", field, "x\n"])

    await database.execute(
        'INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, why, "row") VALUES ($1, 1, 0, $2, $3)',
        str(uuid4()),
        "poison",
        letter.encode(),
    )

    assert await database.fetchval("SELECT count(*) FROM PredictionDeadLetter") == 0


async def test_a_run_that_goes_on_later_erases_what_came_meanwhile(database, database_url, eraser_url, versions, store):
    await archive(database_url, store, never())
    first = await erase(eraser_url)
    await database.execute(
        "UPDATE EntityErasure SET began_at = now() - INTERVAL '7 days', erased_before = now() - INTERVAL '7 days'"
    )
    await ship(database_url, versions[0], just_now() - 60)

    second = await erase(eraser_url, [store])

    assert (first.is_finished, second.is_finished) == (False, True)
    assert await places_of(database, store.root) == []


# -- who may -----------------------------------------------------------------------------------------------------------


async def test_the_role_reads_no_row_and_erases_by_the_functions_alone(database, eraser_url, versions):
    session = await asyncpg.connect(eraser_url, timeout=10)
    for statement in (
        "SELECT * FROM PredictionLog LIMIT 1",
        "SELECT * FROM OutcomeEvent LIMIT 1",
        "SELECT salt FROM EntityErasure",
        "SELECT secret FROM ErasureSecret",
        "UPDATE PredictionLog SET entity_id = 'x'",
        "DELETE FROM LogArchiveFile",
        "SELECT understudy_entity_digest('x')",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await session.execute(statement)
    begun = await session.fetchval("SELECT id FROM understudy_begin_erasure(NULL, $1, NULL, 'sql')", ENTITY)
    with pytest.raises(asyncpg.CheckViolationError, match="no open erasure"):
        await session.execute("SELECT understudy_erase_month($1, $2, $3)", begun, NEIGHBOUR, OLD[0].partition)
    with pytest.raises(asyncpg.CheckViolationError, match="no table of the log"):
        await session.execute("SELECT understudy_erase_month($1, $2, 'apikey')", begun, ENTITY)
    await session.close(timeout=5)


@pytest.mark.parametrize("role", ["proxy", "monitor", "engineer", "retention", "reader"])
async def test_no_other_role_erases(database, database_url, versions, role):
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_{role}")

    with pytest.raises(LoginNotAllowed):
        await erase(f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}")

    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    assert await database.fetchval("SELECT count(*) FROM EntityErasure") == 0


@pytest.mark.parametrize(("model", "entity"), [("chrun", ENTITY), (None, ""), (None, "x" * 256)])
async def test_a_model_that_never_was_and_an_id_that_is_none_are_refused(database, eraser_url, versions, model, entity):
    with pytest.raises(PolicyRefused, match=r"no model of this name|1 to 255 characters"):
        await erase(eraser_url, model=model, entity=entity)

    assert await ids_logged(database)
    assert await database.fetchval("SELECT count(*) FROM EntityErasure") == 0


async def test_looking_changes_nothing_and_counts_what_erasing_erases(
    database, database_url, eraser_url, versions, store
):
    await archive(database_url, store, never())
    async with open_erasures(eraser_url, timeout_seconds=10) as ledger:
        rows = await ledger.entity_rows(None, ENTITY)

    with pytest.raises(PolicyRefused, match="no model of this name"):
        async with open_erasures(eraser_url, timeout_seconds=10) as ledger:
            await ledger.entity_rows("chrun", ENTITY)
    assert rows.log_rows == await database.fetchval(OF_ENTITY, ENTITY) == IN_EACH_MONTH
    assert await database.fetchval("SELECT count(*) FROM EntityErasure") == 0
