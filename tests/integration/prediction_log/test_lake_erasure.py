"""An entity that is erased is in no byte of the lake any more, whatever dies on the way, and its rows are counted."""

import asyncio
import time
from uuid import uuid4

import pytest
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Calls, Fault, Lake, columns_in, files_of, some_rows
from worlds.lake_erasure import ENTITY, an_eraser, bytes_with, forget, names_of, ship

from understudy.adapters.lake.iceberg_table import SCHEMA
from understudy.shipping.shared_spool import SharedSpool

pytestmark = pytest.mark.deep


@pytest.fixture
async def versions(database):
    return [await database.fetchval(A_VERSION, model, "1") for model in ("visits", "churn")]


@pytest.fixture
async def eraser_url(database, database_url):
    """Of a login that may erase entities, and nothing else."""
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_eraser")
    yield f"postgresql://{name}:secret@{database_url.rpartition('@')[2]}"
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


async def test_an_entity_is_in_no_byte_of_the_lake_any_more_and_its_rows_stay_under_one_name_a_model(
    lake, database, eraser_url, versions
):
    for number in range(3):
        await ship(lake, versions[0], range(number * 10, number * 10 + 10))
    await ship(lake, versions[1], range(30, 40))
    await lake.commit()
    await lake.commit(over_seconds=-7_200)  # merged, and the files of before wait for their deletion
    await ship(lake, versions[0], range(40, 43))
    await lake.commit(over_seconds=1e9)
    assert bytes_with(lake, ENTITY)
    async with an_eraser(lake, url=eraser_url) as eraser:
        found = await eraser.find(None, ENTITY)

    result = await forget(lake, url=eraser_url)

    assert (found.lake_rows, found.lake_files, found.lake) == (9, 3, None)
    assert (result.is_finished, result.lake, result.left) == (True, None, [])
    assert (result.erased.lake_rows, result.erased.lake_files) == (9, 3)
    assert bytes_with(lake, ENTITY) == []
    assert {columns_in(path) == SCHEMA.as_struct() for path in files_of(lake)} == {True}
    erased = {name: count for name, count in names_of(lake).items() if name.startswith("erased-")}
    assert sorted(erased.values()) == [2, 7]
    assert sum(names_of(lake).values()) == 43
    gone = {a_prediction_id(number) for number in range(0, 43, 5)}
    assert gone.isdisjoint(lake.ids())
    row = await database.fetchrow("SELECT lake_rows, lake_files, via, finished_at FROM EntityErasure")
    assert (row["lake_rows"], row["lake_files"], row["via"]) == (9, 3, "cli; the lake as well")
    await lake.commit(over_seconds=1e9, snapshot_seconds=-1)
    assert await database.fetchval("SELECT count(*) FROM LakeRewrite") == 0


async def test_of_one_model_alone_the_others_keep_the_name(lake, versions):
    for version in versions:
        await ship(lake, version, range(version * 10, version * 10 + 10))
    await lake.commit()

    result = await forget(lake, model="visits")

    assert result.is_finished
    assert names_of(lake)[ENTITY] == 2
    assert result.erased.lake_rows == 2


async def test_rows_that_come_late_have_lost_the_name_before_they_are_stored(lake, versions):
    await ship(lake, versions[0], range(10))
    await lake.commit()
    assert (await forget(lake)).is_finished

    await ship(lake, versions[0], range(10, 20))
    await ship(lake, versions[0], range(20, 30), at=time.time() + 120)  # the id was given again
    await lake.commit()

    late = [name for name in names_of(lake) if name.startswith("erased-")]
    assert len(late) == 2, "late rows have a name of their own"
    assert names_of(lake)[ENTITY] == 2
    assert sum(names_of(lake).values()) == 30
    assert set(map(a_prediction_id, range(11, 15))) < set(lake.ids())
    assert a_prediction_id(10) not in lake.ids()


async def test_an_erasure_waits_for_files_that_are_on_their_way(lake, database, versions):
    await ship(lake, versions[0], range(10))
    await lake.commit()
    await ship(lake, versions[0], range(10, 20))  # stored, and not committed

    stopped = await forget(lake, patience_seconds=0.0)
    erasing = asyncio.create_task(forget(lake))
    await asyncio.sleep(0.5)
    assert not erasing.done()
    await lake.commit()
    result = await erasing

    assert not stopped.is_finished
    assert "1 files of proxies are not in the table yet" in stopped.left[0].why
    assert result.is_resumed
    assert result.is_finished
    assert bytes_with(lake, ENTITY) == []


async def test_a_file_that_a_proxy_which_never_came_back_stored_half_is_deleted_if_it_names_the_entity(
    lake, database, versions
):
    await ship(lake, versions[0], range(10))
    await lake.commit()
    spool = lake.spool()
    spool.append_all(some_rows(range(10, 20), versions[0], lambda _n: {"entity_id": ENTITY}))
    with pytest.raises(Fault):
        await lake.ship(SharedSpool(spool, 1).shelf_of(0), Calls(2 * 7 + 1))  # after the file was put
    spool.close()
    await database.execute("UPDATE LakeFile SET named_at = now() - INTERVAL '2 hours' WHERE stored_at IS NULL")
    assert len(bytes_with(lake, ENTITY)) == 2
    half = "predictionlog/data/predicted_at_hour=2026-11-26-17/model=visits/{}-1-0-1-9-1.parquet"
    spool_id = "00000000-0000-4000-8000-000000000001"
    await database.execute(
        "INSERT INTO LakeFile (key, spool_id, segment, byte_offset, layout, named_at)"
        " VALUES ($1, $2, 1, 0, 1, now() - INTERVAL '2 hours')", half.format(spool_id), f"lake:{spool_id}"
    )  # fmt: skip
    part = lake.folder / "lake" / half.format(f".unfinished-{spool_id}")
    part.parent.mkdir(parents=True, exist_ok=True)
    part.write_text(f"half of a file, with {ENTITY}")

    assert (await forget(lake)).is_finished

    assert not part.exists()
    assert bytes_with(lake, ENTITY) == []
    await ship(lake, versions[0], [21])  # it came back
    await lake.commit()
    assert sum(names_of(lake).values()) == 21
    assert bytes_with(lake, ENTITY) == []


async def test_a_snapshot_that_has_a_tag_is_told_of(lake, versions):
    await ship(lake, versions[0], range(10))
    await lake.commit()
    table = lake.table().load()
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "quarter").commit()

    tagged = await forget(lake)
    lake.table().load().manage_snapshots().remove_tag("quarter").commit()
    result = await forget(lake)

    assert "a branch or tag of the table keeps a snapshot" in tagged.left[0].why
    assert result.is_finished
    assert bytes_with(lake, ENTITY) == []
