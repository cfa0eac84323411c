"""Months of the log on their way into files: every row is seen once, at every moment, whatever ends the archiver."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest
from pyarrow import parquet
from traffic.spooled_rows import a_row
from worlds.archive import ALL_TIME, MODELS, Month, few_days, fill, ids_logged, ids_seen, month_ago, versions_of

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.memory.archive import MemoryArchive
from understudy.adapters.postgres.prediction_log.archive_ledger import open_ledger
from understudy.adapters.postgres.prediction_log.log_snapshot import log_snapshot
from understudy.adapters.postgres.prediction_log.partitions import PostgresPartitionKeeper
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.archive_plan import ArchiveState
from understudy.core.prediction_log.row import COLUMNS
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.errors import ArchiveBusy, ArchiveDiffers, ArchiveUnavailable, RegistryUnavailable
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome
from understudy.retention.archiver import Moved

ROWS = 40
OLD = [month_ago(4), month_ago(3)]
STATES = "SELECT partition_name, state, attempt FROM LogArchive ORDER BY month_start, id"


class Died(BaseException):
    """What a killed process looks like from inside this one: nothing handles it."""


def die() -> None:
    raise Died


def never() -> Moments:
    return Moments("never", die)


@pytest.fixture
async def versions(database: asyncpg.Connection) -> list[int]:
    ids = await versions_of(database)
    await fill(database, [*OLD, month_ago(0)], ROWS, ids, few_days)
    return ids


@pytest.fixture
def store(tmp_path: Path) -> FolderArchive:
    return FolderArchive(tmp_path / "archive")


async def moved_by(url: str, store: ArchiveStore, moments: Moments | None = None) -> list[Moved]:
    """Archive, and return the months that had rows: ensuring a month also makes the one before it."""
    return [month for month in await archive(url, store, moments or never()) if month.rows]


async def partitions_of(database: asyncpg.Connection) -> list[str]:
    rows = await database.fetch(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'predictionlog'::regclass ORDER BY 1"
    )
    return [row[0] for row in rows]


async def late_row(url: str, month: Month, version_id: int) -> None:
    """Ship a row of a month that is long over, as a proxy does whose machine was off."""
    row = a_row(7_000_001, version_id=version_id)._replace(predicted_at=month.start.timestamp() + 1_000)
    shipping = PostgresPredictionStore(url, timeout_seconds=20)
    encoded = [encode_line(row)]
    done = await shipping.write(SpooledBatch(str(uuid4()), 1, 0, 9, encoded, COLUMNS))
    await shipping.close()
    assert done.outcome is WriteOutcome.WRITTEN


async def test_old_months_are_in_files_and_gone_from_postgres_and_each_row_is_seen_once(
    database, database_url, versions, store
):
    before = await ids_logged(database)

    moved = await moved_by(database_url, store)

    assert [(month.partition_name, month.rows, month.attempts) for month in moved] == [
        (month.partition, ROWS, 1) for month in OLD
    ]
    assert len(await ids_logged(database)) == ROWS
    assert not {month.partition for month in OLD} & set(await partitions_of(database))
    assert await database.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE '%archived%'") == 0
    assert await ids_seen(database_url) == Counter(before)
    assert await database.fetchval("SELECT succeeded_at > now() - INTERVAL '1 minute' FROM ArchiveStatus")


async def test_every_value_is_in_the_files_as_sql_has_it(database, database_url, versions, store):
    await database.execute(
        "UPDATE PredictionLog SET entity_id = $1, score = 'NaN', rollout_id = 9, error_code = '' WHERE id % 3 = 0",
        'a\nb\r\n\t"c",\\é\\.',
    )
    await database.execute("UPDATE PredictionLog SET score = '-Infinity', prediction_id = NULL WHERE id % 5 = 0")
    old = await database.fetch(
        """SELECT p.id, entity_id, input_hash, prediction::text, latency_ms, predicted_at, prediction_id::text,
                  score::text, role, p.status, error_code, bucket, rollout_id, cache_hit, defaulted::text, version
           FROM PredictionLog p JOIN ModelVersion v ON v.id = model_version_id WHERE predicted_at < $1 ORDER BY p.id""",
        OLD[1].end,
    )

    await archive(database_url, store, never())

    found = []
    for key in await store.keys():
        if key.endswith(".parquet"):
            found += parquet.ParquetFile(store.root / key).read().to_pylist()
    found.sort(key=lambda row: row["id"])
    assert len(found) == len(old) == 2 * ROWS
    for mine, theirs in zip(found, old, strict=True):
        text = {None: None, "NaN": "nan", "-Infinity": "-inf"}
        score = theirs["score"]
        assert str(mine["score"]) == str(text.get(score, score and float(score)))
        assert {name: mine[name] for name in theirs.keys() if name != "score"} == {  # noqa: SIM118 - a record's
            name: value for name, value in theirs.items() if name != "score"
        }


@pytest.mark.long
@pytest.mark.exhaustive
async def test_an_archiver_that_dies_at_any_call_loses_and_doubles_nothing_and_the_next_one_finishes(
    postgres, database, database_url, tmp_path
):
    ids = await versions_of(database)
    await fill(database, OLD[:1], 2, ids)
    before = Counter(await ids_logged(database))
    name = database_url.rpartition("/")[2]
    database.terminate()
    admin = await asyncpg.connect(postgres.url, timeout=10)
    lived = -1
    async for url in copies_of(admin, postgres, name):
        lived += 2  # the moment after a call is the one before the next
        store = FolderArchive(tmp_path / f"archive-{lived}")
        moments = Moments(lived, die)
        try:
            await archive(url, store, moments)
            break
        except Died:
            pass
        assert await ids_seen(url) == before, lived
        await archive(url, store, never())
        assert await ids_seen(url) == before, lived
        files = {key for key in await store.keys() if key.endswith(".parquet")}
        database = await asyncpg.connect(url, timeout=10)
        known = {row[0] for row in await database.fetch("SELECT key FROM LogArchiveFile")}
        states = {row[0] for row in await database.fetch("SELECT state FROM LogArchive")}
        await database.close(timeout=5)
        assert files == known, lived
        assert states == {"archived"}, lived
    await admin.close(timeout=5)

    assert lived > 30


async def copies_of(admin: asyncpg.Connection, postgres, name: str) -> AsyncIterator[str]:
    while True:
        copy = f"{name}_copy"
        await admin.execute(f"CREATE DATABASE {copy} TEMPLATE {name} {postgres.copied}")
        try:
            yield postgres.url_of(copy)
        finally:
            await admin.execute(f"DROP DATABASE {copy} WITH (FORCE)")


async def test_rows_that_come_while_a_month_is_archived_are_in_its_files_too(database, database_url, versions, store):
    class LateStore(FolderArchive):
        """Lets a row come when all files of the first month are written."""

        came = False

        async def put(self, key: str, source: Path) -> None:
            if key.startswith("manifests/") and not self.came:
                self.came = True
                await late_row(database_url, OLD[0], versions[0])
            await super().put(key, source)

    moved = await moved_by(database_url, LateStore(store.root))

    assert [(month.rows, month.attempts) for month in moved] == [(ROWS + 1, 2), (ROWS, 1)]
    seen = await ids_seen(database_url)
    assert (len(seen), set(seen.values())) == (3 * ROWS + 1, {1})
    files = [key for key in await store.keys() if key.endswith(".parquet")]
    assert len(files) == await database.fetchval("SELECT count(*) FROM LogArchiveFile")


async def test_a_row_that_comes_after_its_month_is_gone_is_logged_and_archived_by_the_next_run(
    database, database_url, versions, store
):
    await archive(database_url, store, never())

    await late_row(database_url, OLD[0], versions[0])
    seen_between = await ids_seen(database_url)
    (moved,) = await moved_by(database_url, store)

    assert (moved.partition_name, moved.rows) == (OLD[0].partition, 1)
    assert await database.fetchval("SELECT count(*) FROM PredictionDeadLetter") == 0
    assert await ids_seen(database_url) == seen_between
    assert set(seen_between.values()) == {1}
    assert len(seen_between) == 3 * ROWS + 1


async def test_a_row_may_come_between_detaching_and_dropping_as_well(database, database_url, versions, store):
    with pytest.raises(Died):
        await archive(database_url, store, Moments("after:detach", die))

    await late_row(database_url, OLD[0], versions[0])
    moved = await moved_by(database_url, store)
    again = await moved_by(database_url, store)

    assert [month.partition_name for month in moved] == [month.partition for month in OLD]
    assert [(month.partition_name, month.rows) for month in again] == [(OLD[0].partition, 1)]
    seen = await ids_seen(database_url)
    assert (len(seen), set(seen.values())) == (3 * ROWS + 1, {1})


@pytest.mark.parametrize("moment", ["after:end_export", "after:verified", "after:detach"])
async def test_files_that_are_damaged_or_gone_are_found_before_anything_is_dropped_and_written_anew(
    database, database_url, versions, store, moment
):
    before = Counter(await ids_logged(database))
    with pytest.raises(Died):
        await archive(database_url, store, Moments(moment, die))
    first, second, *_ = (key for key in await store.keys() if key.endswith(".parquet"))
    (store.root / first).unlink()
    (store.root / second).write_bytes(b"PAR1")

    await archive(database_url, store, never())

    assert await ids_seen(database_url) == before


async def test_while_lost_files_are_written_anew_a_reader_is_refused_and_not_given_less(
    database, database_url, versions, store
):
    with pytest.raises(Died):
        await archive(database_url, store, Moments("after:detach", die))
    (store.root / next(key for key in await store.keys() if key.endswith(".parquet"))).unlink()
    with pytest.raises(Died):
        await archive(database_url, store, Moments("after:begin_export", die))

    with pytest.raises(ArchiveDiffers, match=f"{OLD[0].partition}_archived_"):
        await ids_seen(database_url)
    await archive(database_url, store, never())

    assert len(await ids_seen(database_url)) == 3 * ROWS


async def test_a_store_that_does_not_keep_what_it_was_given_never_costs_a_row(database, database_url, versions):
    class Forgetful(MemoryArchive):
        async def put(self, key: str, source: Path) -> None:
            await super().put(key, source)
            self.objects[key] = self.objects[key][:-1]

    with pytest.raises(ArchiveDiffers, match="written 3 times"):
        await archive(database_url, Forgetful(), never())

    assert len(await ids_logged(database)) == 3 * ROWS
    assert await database.fetchval("SELECT count(*) FROM ArchiveStatus") == 0


async def test_a_month_whose_files_differ_keeps_no_other_month_from_its_files_and_is_named(
    database, database_url, versions
):
    class ForgetfulOfOne(MemoryArchive):
        is_forgetful = True

        async def put(self, key: str, source: Path) -> None:
            await super().put(key, source)
            if self.is_forgetful and f"/day={OLD[0].start:%Y-%m}" in key:
                self.objects[key] = self.objects[key][:-1]

    store = ForgetfulOfOne()
    with pytest.raises(ArchiveDiffers, match=f"{OLD[0].partition}, written 3 times.*other months: 1 archived"):
        await archive(database_url, store, never())
    left = await partitions_of(database)
    successes = await database.fetchval("SELECT count(*) FROM ArchiveStatus")
    store.is_forgetful = False
    (moved,) = await moved_by(database_url, store)

    assert OLD[0].partition in left
    assert OLD[1].partition not in left
    assert successes == 0
    assert moved.partition_name == OLD[0].partition
    assert len(await ids_seen(database_url, lambda _location: store)) == 3 * ROWS


async def test_a_key_that_leads_out_of_the_archive_reaches_no_file_and_stops_no_other_month(
    database, database_url, versions, store, tmp_path
):
    outside = tmp_path / "outside"
    outside.write_bytes(b"another program's")
    for moment in (Moments("after:begin_export", die), Moments("after:end_export", die)):
        with pytest.raises(Died):
            await archive(database_url, store, moment)
    # A row of before migration 0016, which refuses such keys.
    await database.execute("DROP TRIGGER IF EXISTS logarchivefile_key_below_root ON LogArchiveFile")
    await database.execute(
        "INSERT INTO LogArchiveFile SELECT id, '../outside', 'churn', '2026-08-01', 0, 0, repeat('0', 64)"
        " FROM LogArchive WHERE partition_name = $1", OLD[0].partition,
    )  # fmt: skip

    with pytest.raises(ArchiveDiffers, match=f"{OLD[0].partition}, its key '../outside' leads out.*1 archived"):
        await archive(database_url, store, never())
    await database.execute("DELETE FROM LogArchiveFile WHERE key = '../outside'")
    (moved,) = await moved_by(database_url, store)

    assert outside.read_bytes() == b"another program's"
    assert moved.partition_name == OLD[0].partition
    assert len(await ids_seen(database_url)) == 3 * ROWS


@pytest.mark.exhaustive
async def test_two_archivers_do_not_work_at_once(database, database_url, versions, store):
    async with open_ledger(database_url, timeout_seconds=10) as ledger, ledger.alone():
        with pytest.raises(ArchiveBusy, match="another run"):
            await archive(database_url, store, never())

    assert len(await moved_by(database_url, store)) == len(OLD)


async def test_a_run_that_was_overtaken_writes_nothing_more(database, database_url, versions, store):
    async with open_ledger(database_url, timeout_seconds=10) as overtaken:
        (month, *_) = await overtaken.partitions()
        mine = await overtaken.begin_export(await overtaken.begin(month, store.location))
        async with open_ledger(database_url, timeout_seconds=10) as other:
            (theirs,) = await other.open_archives()
            await other.begin_export(theirs)

        with pytest.raises(ArchiveBusy, match="another run has taken"):
            await overtaken.verified(mine)


async def test_a_reader_that_stays_holds_a_month_back_and_nobody_else_up(database, database_url, versions, store):
    reader, writer = [await asyncpg.connect(database_url, timeout=10) for _ in range(2)]
    reading = reader.transaction()
    await reading.start()
    await reader.execute("SELECT count(*) FROM PredictionLog")
    waited = []

    async def archive_impatiently() -> None:
        async with open_ledger(database_url, timeout_seconds=10, lock_patience_seconds=2) as ledger:
            (month, *_) = await ledger.open_archives()
            await ledger.detach(month)

    with pytest.raises(Died):
        await archive(database_url, store, Moments("after:verified", die))
    impatient = asyncio.create_task(archive_impatiently())
    while not impatient.done():
        began = time.monotonic()
        await writer.execute(
            "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms)"
            " VALUES ($1, 'u', 'h', '{}', 1)",
            versions[0],
        )
        waited.append(time.monotonic() - began)
        await asyncio.sleep(0.01)

    with pytest.raises(ArchiveBusy, match="stays open"):
        await impatient
    assert len(waited) > 10
    # One and a half for the lock, and a machine that others share.
    assert max(waited) < 5
    await reading.rollback()
    assert len(await moved_by(database_url, store)) == len(OLD)
    reader.terminate()
    writer.terminate()


async def test_while_a_query_is_open_no_month_is_taken_out(database, database_url, versions, store):
    month = await a_verified_month(database_url, store)

    async with log_snapshot(database_url, timeout_seconds=10) as snapshot:
        async with open_ledger(database_url, timeout_seconds=10, lock_patience_seconds=0) as ledger:
            (verified,) = await ledger.open_archives()
            with pytest.raises(ArchiveBusy, match="stays open"):
                await ledger.detach(verified)
        assert await snapshot.files(ALL_TIME) == []

    assert verified.id == month
    assert len(await moved_by(database_url, store)) == len(OLD)


async def test_a_month_on_its_way_stays_on_it(database, database_url, versions, store, tmp_path):
    with pytest.raises(Died):
        await archive(database_url, store, Moments("after:end_export", die))

    with pytest.raises(ArchiveUnavailable, match="on its way to file://"):
        await archive(database_url, FolderArchive(tmp_path / "elsewhere"), never())


async def test_what_is_known_of_each_month_is_its_time_and_whether_it_has_rows_and_inputs(
    database, database_url, versions
):
    await database.execute(
        "UPDATE PredictionLog SET inputs = '{}' WHERE predicted_at >= $1 AND predicted_at < $2", *OLD[1]
    )

    async with open_ledger(database_url, timeout_seconds=10) as ledger:
        known = {month.name: month for month in await ledger.partitions()}

    for month in (*OLD, month_ago(-1)):
        assert known[month.partition][1:3] == (month.start.timestamp(), month.end.timestamp())
    assert [known[month.partition][3:] for month in (*OLD, month_ago(-1))] == [
        (True, False),
        (True, True),
        (False, False),
    ]


async def test_an_empty_month_that_is_long_over_is_dropped(database, database_url, versions, store):
    await database.execute("SELECT understudy_ensure_partitions(0, $1)", month_ago(7).start)

    moved = await archive(database_url, store, never())

    assert [month.rows for month in moved] == [0, 0, ROWS, ROWS]
    assert len(await ids_seen(database_url)) == 3 * ROWS


# -- the database's own word -------------------------------------------------------------------------------------------


async def a_verified_month(url: str, store: FolderArchive) -> int:
    with pytest.raises(Died):
        await archive(url, store, Moments("after:verified", die))
    async with open_ledger(url, timeout_seconds=10) as ledger:
        (month,) = await ledger.open_archives()
    assert month.state is ArchiveState.VERIFIED
    return month.id


async def test_postgres_takes_no_month_out_whose_files_do_not_add_up(database, database_url, versions, store):
    month = await a_verified_month(database_url, store)
    await database.execute(
        "UPDATE LogArchiveFile SET row_count = row_count - 1 WHERE key = (SELECT min(key) FROM LogArchiveFile)"
    )

    with pytest.raises(asyncpg.CheckViolationError, match=f"hold {ROWS - 1} rows instead of {ROWS}"):
        await database.execute("SELECT understudy_detach_archived($1)", month)


async def test_postgres_keeps_a_month_whose_rows_changed_since(database, database_url, versions, store):
    month = await a_verified_month(database_url, store)
    await database.execute("DELETE FROM PredictionLog WHERE id = (SELECT min(id) FROM PredictionLog)")

    assert not await database.fetchval("SELECT understudy_detach_archived($1)", month)
    assert OLD[0].partition in await partitions_of(database)


@pytest.mark.parametrize("state", ["exporting", "exported"])
async def test_postgres_takes_no_month_out_before_its_files_were_read_back(
    database, database_url, versions, store, state
):
    month = await a_verified_month(database_url, store)
    await database.execute("UPDATE LogArchive SET state = $1", state)

    for function in ("understudy_detach_archived", "understudy_drop_archived"):
        with pytest.raises(asyncpg.CheckViolationError, match=f"archive {month} is {state}"):
            await database.execute(f"SELECT {function}($1)", month)


async def test_postgres_takes_no_month_out_that_is_not_over(database, versions):
    this = month_ago(0)
    month = await database.fetchval(
        "INSERT INTO LogArchive (partition_name, month_start, month_end, location, state, row_count, fingerprint)"
        " VALUES ($1, $2, $3, 'file:///x', 'verified', 0, '') RETURNING id",
        this.partition,
        month_ago(5).start,
        month_ago(5).end,
    )

    with pytest.raises(asyncpg.CheckViolationError, match=f"{this.partition} is not over"):
        await database.execute("SELECT understudy_detach_archived($1)", month)


@pytest.mark.parametrize("name", ["policyaudit", "predictionlog", "predictionlog_2026_08; DROP TABLE policyaudit"])
async def test_nothing_but_a_month_can_be_on_its_way(database, name):
    with pytest.raises(asyncpg.CheckViolationError):
        await database.execute(
            "INSERT INTO LogArchive (partition_name, month_start, month_end, location)"
            " VALUES ($1, now(), now() + INTERVAL '1 day', 'file:///x')",
            name,
        )


# -- months ahead ------------------------------------------------------------------------------------------------------


async def test_the_months_ahead_are_made_again_and_counted_to_the_first_gap(database, database_url):
    keeper = PostgresPartitionKeeper(database_url, timeout_seconds=20)
    ahead = [month_ago(-place).partition for place in range(4)]
    await database.execute(f"DROP TABLE {ahead[2]}, {ahead[3]}")

    made = await keeper.ensure()
    await database.execute("INSERT INTO ArchiveStatus (succeeded_at) VALUES (to_timestamp(1.75e9))")
    later = await keeper.ensure()

    assert made == (3, None, 0)
    assert later == (3, 1.75e9, 0)


async def test_a_postgres_that_is_away_is_said(database_url):
    with pytest.raises(RegistryUnavailable):
        await PostgresPartitionKeeper("postgresql://127.0.0.1:1/nothing", timeout_seconds=1).ensure()


def test_the_models_of_these_tests_have_names_that_paths_must_not_have():
    assert any(set("/=%") <= set(model) for model in MODELS)
