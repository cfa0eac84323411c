"""The log as an Iceberg table: each row once, whatever dies, and with the log's own columns."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Calls, Fault, Lake, columns_in, files_of, log_shipper, ship_both, some_rows

from understudy.adapters.lake.iceberg_table import SCHEMA
from understudy.core.prediction_log.archive_plan import ROWS_ROOT
from understudy.core.prediction_log.lake import LAKE_COLUMNS, LAYOUT
from understudy.errors import LakeUnavailable
from understudy.shipping.shared_spool import SharedSpool

pytestmark = pytest.mark.deep


@pytest.fixture
async def version(database):
    return await database.fetchval(A_VERSION, "visits", "1")


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


def once(numbers: Iterable[int]) -> Counter[str]:
    return Counter(map(a_prediction_id, numbers))


def without_ids(rows: Any) -> Any:
    return rows.cast(pa.schema([field.remove_metadata() for field in rows.schema]))


def plain(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in an order, with documents as values: Postgres writes spaces into JSON."""
    documents = ("prediction", "defaulted", "slices")
    read = [{**row, **{name: row[name] and json.loads(row[name]) for name in documents}} for row in rows]
    told = [{**row, "prediction_id": str(row["prediction_id"])} for row in read]
    return sorted(told, key=lambda row: row["prediction_id"])


async def test_rows_are_in_the_table_as_they_are_in_the_log(lake, database, version):
    other = await database.fetchval(A_VERSION, "churn/eu", "é 2")
    odd = {"entity_id": 'a\tb\\N "c"\n\\', "score": None, "defaulted": ("age", "city"), "slices": b'{"country":"de"}'}
    spool = lake.spool()
    spool.append_all(some_rows(range(40), version, lambda _n: {}))
    spool.append_all(some_rows(range(40, 60), other, lambda n: odd if n % 2 else {"rollout_id": None}))

    await ship_both(lake, spool)
    await lake.commit()

    names = ", ".join(f"l.{name}" for name, _ in LAKE_COLUMNS if name not in ("model", "version"))
    logged = await database.fetch(
        f"""SELECT {names}, model_name AS model, version
            FROM PredictionLog l JOIN ModelVersion m ON m.id = model_version_id"""
    )
    assert plain(map(dict, logged)) == plain(lake.rows().to_pylist())
    assert lake.ids() == once(range(60))
    assert spool.own.unshipped_bytes == 0
    spool.close()


async def test_whatever_call_a_shipper_dies_at_each_row_is_in_the_table_once(lake, version):
    spool = lake.spool(segment_bytes=4_000)
    last = 0
    called: set[str] = set()
    # Before a call is after the one before it.
    for dies_at in range(1, 22, 2):
        spool.append_all(some_rows(range(last, last + 12), version, lambda _n: {}))
        last, calls = last + 12, Calls(dies_at)
        # Rows gathered beside the file that could not be stored make another file of the same spool.
        with suppress(Fault):
            await lake.ship(SharedSpool(spool, 1).shelf_of(0), calls, file_bytes=6_000)
        called |= set(calls.names)
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))
    await lake.commit()

    assert {"committed", "names_of", "write", "name", "put", "stored"} <= called
    assert lake.ids() == once(range(last))
    spool.close()


async def test_whatever_call_a_committer_dies_at_each_row_is_in_the_table_once(lake, version):
    spool = lake.spool()
    shelf = SharedSpool(spool, 1).shelf_of(0)
    last = 0
    called: set[str] = set()
    for dies_at in range(1, 12, 2):
        spool.append_all(some_rows(range(last, last + 3), version, lambda _n: {}))
        last, calls = last + 3, Calls(dies_at)
        await lake.ship(shelf)
        with suppress(Fault):
            await lake.commit(calls)
        called |= set(calls.names)
    await lake.commit()

    assert {"last_commit", "open_commit", "begin", "commit", "end"} <= called
    assert lake.ids() == once(range(last))
    spool.close()


async def test_a_leader_that_was_replaced_in_the_middle_of_a_commit_adds_nothing(lake, version):
    spool = lake.spool()
    shelf = SharedSpool(spool, 1).shelf_of(0)
    await lake.commit()
    spool.append_all(some_rows(range(5), version, lambda _n: {}))
    await lake.ship(shelf)
    epoch = await lake.epoch()
    commit = await lake.commits.begin(0, LAYOUT, 10, epoch=epoch)
    old, new = lake.table(), lake.table()
    late = old.load()  # what the old leader's commit is made of
    assert new.commit(commit)
    old.load = lambda: late

    with pytest.raises(LakeUnavailable, match="another process changed the table"):
        old.commit(commit)
    both = await asyncio.gather(*(asyncio.to_thread(lake.table().commit, commit) for _ in range(2)))

    assert both == [False, False]
    assert lake.ids() == once(range(5))
    await lake.commits.end(commit.number, epoch=epoch)
    assert await lake.commits.open_commit() is None
    spool.close()


async def test_files_that_no_shipper_can_store_any_more_are_swept_and_no_others(lake, database, version):
    spool = lake.spool()
    shelf = SharedSpool(spool, 1).shelf_of(0)
    spool.append_all(some_rows(range(5), version, lambda _n: {}))
    with pytest.raises(Fault):
        await lake.ship(shelf, Calls(2 * 7 + 1))  # after the file was put
    spool.append_all(some_rows(range(5, 7), version, lambda _n: {}))
    left = await lake.store.keys()
    await database.execute("UPDATE LakeFile SET named_at = now() - INTERVAL '2 hours'")
    await lake.commit()
    assert [key for key in await lake.store.keys() if "/data/" in key] == list(left), "its spool may still come to it"

    await lake.ship(shelf)
    await lake.commit()

    kept = [row["key"] for row in await database.fetch("SELECT key FROM LakeFile")]
    forgotten = "predictionlog/data/of-a-pod-that-never-came-back.parquet"
    await database.execute(
        "INSERT INTO LakeFile (key, spool_id, segment, byte_offset, layout, named_at)"
        " VALUES ($1, 'lake:gone', 0, 0, 1, now() - INTERVAL '2 years'),"
        " ('predictionlog/data/young.parquet', 'lake:gone', 0, 0, 1, now() - INTERVAL '2 days')", forgotten
    )  # fmt: skip
    assert await lake.commits.left_over(3_600, 9) == [forgotten]
    await database.execute("DELETE FROM LakeFile WHERE spool_id = 'lake:gone'")
    assert [key for key in await lake.store.keys() if "/data/" in key] == kept
    assert len(left) == 1
    assert left[0] not in kept
    assert lake.ids() == once(range(7))
    spool.close()


async def test_a_release_adds_its_column_to_the_table_and_leaves_out_rows_of_versions_that_are_gone(lake, version):
    table = lake.table()
    with table.load().update_schema(allow_incompatible_changes=True) as columns:
        columns.delete_column("slices")
    spool = lake.spool()
    spool.append_all(some_rows(range(3), version, lambda _n: {"slices": b'{"country":"de"}'}))
    spool.append_all(some_rows([3], version + 99, lambda _n: {}))
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))

    await lake.commit()

    assert lake.rows()["slices"].to_pylist() == ['{"country":"de"}'] * 3
    spool.close()


async def test_files_have_field_ids_and_those_without_them_are_read_by_their_names(lake, version):
    spool = lake.spool()
    spool.append_all(some_rows(range(3), version, lambda _n: {}))
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))
    await lake.commit()
    before = lake.rows()
    (file,) = files_of(lake)
    plain_file = lake.folder / "lake" / ROWS_ROOT / "data" / "plain.parquet"
    parquet.write_table(without_ids(parquet.read_table(file.removeprefix("file://"))), plain_file)

    # As an earlier release added one.
    lake.table().load().add_files([f"file://{plain_file}"])

    assert columns_in(file) == SCHEMA.as_struct()
    with pytest.raises(ValueError, match="does not have field-ids"):
        columns_in(str(plain_file))
    assert len(files_of(lake)) == 2
    assert sorted(lake.rows().to_pylist(), key=repr) == sorted(before.to_pylist() * 2, key=repr)
    spool.close()


async def test_a_table_of_which_another_engine_renamed_a_column_takes_no_file(lake, version):
    with lake.table().load().update_schema() as columns:
        columns.rename_column("slices", "cuts")
    spool = lake.spool()
    spool.append_all(some_rows(range(3), version, lambda _n: {"slices": b'{"country":"de"}'}))
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))

    with pytest.raises(LakeUnavailable, match=r"field id 23 is slices in files, and cuts in the table") as refused:
        await lake.commit()

    assert "give the one with this id that name" in refused.value.next_step
    with lake.table().load().update_schema() as columns:
        columns.rename_column("cuts", "slices")
    await lake.commit()
    assert lake.rows()["slices"].to_pylist() == ['{"country":"de"}'] * 3
    spool.close()


async def test_a_file_of_a_later_release_waits_for_its_committer(lake, database, version):
    spool = lake.spool()
    spool.append_all(some_rows(range(3), version, lambda _n: {}))
    await lake.ship(SharedSpool(spool, 1).shelf_of(0))
    await database.execute("UPDATE LakeFile SET layout = $1", LAYOUT + 1)

    await lake.commit()

    assert lake.ids() == once([])
    assert (await lake.commits.waiting()).files == 1
    spool.close()


@pytest.mark.parametrize("is_lake_first", [True, False])
async def test_room_is_given_back_once_both_have_the_rows(lake, version, is_lake_first):
    spool = lake.spool(segment_bytes=4_096)
    spool.append_all(some_rows(range(100), version, lambda _n: {}))
    shared = SharedSpool(spool, 2)
    whole = spool.own.unshipped_bytes
    async with log_shipper(lake, shared.shelf_of(1)) as shipper:
        if is_lake_first:
            await lake.ship(shared.shelf_of(0))
            behind = shared.shelf_of(1).own
        else:
            await shipper.drain(60)
            behind = shared.shelf_of(0).own
        assert (spool.own.unshipped_bytes, behind.unshipped_bytes) == (whole, whole)
        await (shipper.drain(60) if is_lake_first else lake.ship(shared.shelf_of(0)))

    assert (spool.own.unshipped_bytes, behind.unshipped_bytes) == (0, 0)
    spool.close()
