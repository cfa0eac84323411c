"""The lake's table in shape: small files become one, old rows go, and no row is lost or doubled whatever dies."""

from collections import Counter
from typing import Any

import pytest
from traffic.spooled_rows import a_prediction_id
from worlds.lake import A_VERSION, Lake, columns_in, files_of, ship_files, stored

from understudy.adapters.lake.iceberg_table import SCHEMA
from understudy.adapters.lake.rewriting import IcebergRewrites
from understudy.core.prediction_log.lake import LAKE_COLUMNS
from understudy.errors import LakeUnavailable

pytestmark = pytest.mark.deep
HOUR, DAY = 3_600.0, 86_400.0


@pytest.fixture
async def versions(database):
    return [await database.fetchval(A_VERSION, model, "1") for model in ("visits", "churn/eu 1")]


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


def rows_of(lake: Lake) -> list[dict[str, Any]]:
    return sorted(lake.rows().select([name for name, _ in LAKE_COLUMNS]).to_pylist(), key=lambda r: r["prediction_id"])


async def test_small_files_of_a_model_and_hour_become_one_and_the_replaced_ones_go_when_no_snapshot_has_them(
    lake, database, versions
):
    await ship_files(lake, versions[0], range(5))
    await ship_files(lake, versions[1], range(5, 8))
    before, small = rows_of(lake), files_of(lake)
    reader = lake.table().load().scan()

    await lake.commit(over_seconds=0)

    assert len(small) == 8
    assert len(files_of(lake)) == 2
    assert [columns_in(path) for path in files_of(lake)] == [SCHEMA.as_struct()] * 2
    assert rows_of(lake) == before
    assert len(stored(lake)) == 10
    assert reader.to_arrow().num_rows == 24, "a reader's own snapshot still has its files"
    await lake.commit(over_seconds=0)
    assert len(stored(lake)) == 10, "the snapshots are young"

    await lake.commit(over_seconds=0, snapshot_seconds=-1)

    assert sorted(path.rpartition("/")[2] for path in files_of(lake)) == stored(lake)
    assert lake.ids() == Counter(map(a_prediction_id, range(24)))
    assert await database.fetchval("SELECT count(*) FROM LakeRewrite") == 0


async def test_rows_that_another_engine_deleted_while_files_were_merged_stay_deleted(lake, versions):
    await ship_files(lake, versions[0], range(3))
    rewrites = IcebergRewrites(lake.table())
    look = rewrites.look()
    lake.folder.joinpath("merged").mkdir()
    target = lake.folder / "merged" / "m.parquet"
    assert look.write_together(look.files, target) == 9
    await lake.store.put("predictionlog/data/m.parquet", target)

    moment = min(row["predicted_at"] for row in rows_of(lake))
    lake.table().load().delete(f"predicted_at == '{moment.isoformat()}'")  # the rows of one file

    assert rewrites.replace(look.files, ["predictionlog/data/m.parquet"], 1) is None
    await lake.commit(over_seconds=0)
    assert lake.ids() == Counter(map(a_prediction_id, range(3, 9)))


async def test_two_that_replace_the_same_files_do_it_once(lake, versions):
    await ship_files(lake, versions[0], range(3))
    first, second = IcebergRewrites(lake.table()), IcebergRewrites(lake.table())
    look = first.look()
    target = lake.folder / "m.parquet"
    look.write_together(look.files, target)
    for key in ("predictionlog/data/m1.parquet", "predictionlog/data/m2.parquet"):
        await lake.store.put(key, target)

    assert first.replace(look.files, ["predictionlog/data/m1.parquet"], 1) is not None
    assert second.replace(look.files, ["predictionlog/data/m2.parquet"], 2) is None
    assert lake.ids() == Counter(map(a_prediction_id, range(9)))


async def test_a_rewrite_that_was_given_up_is_refused_and_a_later_one_is_not(lake, versions):
    await ship_files(lake, versions[0], range(2))
    late, rewrites = IcebergRewrites(lake.table()), IcebergRewrites(lake.table())
    look = late.look()
    target = lake.folder / "m.parquet"
    look.write_together(look.files, target)
    await lake.store.put("predictionlog/data/m.parquet", target)

    rewrites.give_up(4)

    assert late.replace(look.files, ["predictionlog/data/m.parquet"], 4) is None
    assert rewrites.replace(look.files, ["predictionlog/data/m.parquet"], 5) is not None
    assert lake.ids() == Counter(map(a_prediction_id, range(6)))


async def test_a_rewrite_that_a_commit_was_faster_than_is_made_of_what_the_table_is_then(lake, versions):
    await ship_files(lake, versions[0], range(2))
    table = lake.table()
    rewrites, stale = IcebergRewrites(table), [table.load()]
    look = rewrites.look()
    target = lake.folder / "m.parquet"
    look.write_together(look.files, target)
    await lake.store.put("predictionlog/data/m.parquet", target)
    await ship_files(lake, versions[0], [2])

    newest = table.load
    table.load = lambda: stale.pop() if stale else newest()

    assert rewrites.replace(look.files, ["predictionlog/data/m.parquet"], 1) is not None
    assert stale == []
    assert lake.ids() == Counter(map(a_prediction_id, range(9)))


async def test_an_hour_that_cannot_be_merged_holds_up_no_other_hour(lake, versions):
    await ship_files(lake, versions[0], range(3))
    broken = lake.folder / files_of(lake)[0].partition(f"{lake.folder}/")[2]
    await ship_files(lake, versions[1], range(3, 5), ago=4 * HOUR)
    broken.write_bytes(b"no Parquet")
    job, epoch = lake.job(over_seconds=0), await lake.epoch()

    with pytest.raises(LakeUnavailable):
        await job.run(epoch)
    await job.run(epoch)

    assert len(files_of(lake)) == 4


async def test_rows_older_than_so_many_days_go_a_whole_file_at_a_time(lake, database, versions):
    await ship_files(lake, versions[0], range(2), ago=9 * DAY)
    await ship_files(lake, versions[1], range(2, 4), ago=5 * DAY)
    await ship_files(lake, versions[0], range(4, 6), ago=2 * HOUR)

    await lake.commit(days=7, snapshot_seconds=-1)

    assert lake.ids() == Counter(map(a_prediction_id, range(6, 18)))
    assert len(stored(lake)) == len(files_of(lake))
    await lake.commit(days=1, snapshot_seconds=-1)
    assert lake.ids() == Counter(map(a_prediction_id, range(12, 18)))
    assert await database.fetchval("SELECT count(*) FROM LakeRewrite") == 0


async def test_a_list_of_files_to_delete_that_names_one_of_the_table_deletes_it_not(lake, database, versions):
    await ship_files(lake, versions[0], range(2))
    (first, *_), kept = files_of(lake), stored(lake)
    metadata = lake.table().load().metadata_location
    await database.execute(
        "INSERT INTO LakeRewrite (kind, old_paths, new_keys, ended_at, sequence) VALUES"
        " ('erase', $1, $2, now() - INTERVAL '1 day', 0)",
        [first, metadata, "file:///etc/hostname", f"{lake.location}/../outside.parquet"],
        [first.removeprefix(f"{lake.location}/")],
    )
    lake.folder.joinpath("outside.parquet").write_text("not the lake's")

    await lake.commit(over_seconds=1e9, snapshot_seconds=0)

    assert stored(lake) == kept
    assert lake.folder.joinpath(metadata.partition(f"{lake.folder}/")[2]).exists()
    assert lake.folder.joinpath("outside.parquet").exists()
