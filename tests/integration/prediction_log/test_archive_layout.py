"""What other readers make of an archive: partition discovery and types, by Spark's conventions."""

from datetime import UTC, date

import duckdb
import orjson
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from worlds.archive import few_days, fill, month_ago, versions_of

from rigs.faults.archive_worker import Moments, archive
from understudy.adapters.archive.folder import FolderArchive

ROWS = 400
MONTH = month_ago(3)
MODELS = ("churn", "visits/ä=%", "2026")


@pytest.fixture
async def root(database, database_url, tmp_path):
    await fill(database, [MONTH], ROWS, await versions_of(database, MODELS), few_days)
    await archive(database_url, FolderArchive(tmp_path / "archive"), Moments("never", lambda: None))
    return tmp_path / "archive" / "predictionlog"


def test_every_folder_is_a_column_with_its_value_and_nothing_else_lies_there(root):
    for path in root.rglob("*"):
        name = path.name
        assert name.startswith(("model=", "day=")) if path.is_dir() else name.endswith(".parquet"), path

    models = sorted(path.name for path in root.iterdir())
    assert models == ["model=2026", "model=churn", "model=visits%2Fä%3D%25"]


def test_pyarrow_discovers_model_and_day_from_the_paths(root):
    layout = dataset.partitioning(pa.schema([("model", pa.string()), ("day", pa.date32())]), flavor="hive")
    found = dataset.dataset(root, partitioning=layout)

    rows = found.to_table()
    days = found.to_table(filter=dataset.field("day") == MONTH.start.date())

    assert rows.num_rows == ROWS
    assert set(rows["model"].to_pylist()) == set(MODELS)
    assert set(days["day"].to_pylist()) == {MONTH.start.date()}
    for moment, day in zip(rows["predicted_at"].to_pylist(), rows["day"].to_pylist(), strict=True):
        assert moment.astimezone(UTC).date() == day


def test_duckdb_discovers_them_and_prunes(root):
    found = duckdb.execute(
        f"SELECT model, day, count(*) AS n, min(predicted_at::DATE) AS first FROM read_parquet('{root}/*/*/*.parquet',"
        " hive_partitioning = TRUE, hive_types = {'model': VARCHAR, 'day': DATE}) GROUP BY ALL"
    ).fetchall()

    assert {row[0] for row in found} == set(MODELS)
    assert sum(row[2] for row in found) == ROWS
    assert all(isinstance(row[1], date) for row in found)


def test_types_are_those_that_spark_reads(root):
    path = next(root.rglob("*.parquet"))
    opened = parquet.ParquetFile(path)
    columns = {
        opened.schema.column(place).name: opened.schema.column(place) for place in range(len(opened.schema.names))
    }

    time = columns["predicted_at"]
    assert time.physical_type == "INT64"
    assert orjson.loads(time.logical_type.to_json()) == {
        "Type": "Timestamp",
        "isAdjustedToUTC": True,
        "timeUnit": "microseconds",
        "is_from_converted_type": False,
        "force_set_converted_type": False,
    }
    logical = {column.logical_type.type for column in columns.values()}
    assert logical <= {"NONE", "STRING", "TIMESTAMP", "INT"}
    assert orjson.loads(columns["bucket"].logical_type.to_json()) == {"Type": "Int", "bitWidth": 16, "isSigned": True}
    assert {"model", "day", "inputs"} & set(columns) == set()


def test_files_are_sorted_say_so_and_are_compressed_with_zstd(root):
    for path in root.rglob("*.parquet"):
        with parquet.ParquetFile(path) as opened:
            rows = opened.read(columns=["predicted_at", "id"]).to_pylist()
            group = opened.metadata.row_group(0)
        assert rows == sorted(rows, key=lambda row: (row["predicted_at"], row["id"]))
        names = [group.column(sorting.column_index).path_in_schema for sorting in group.sorting_columns]
        assert names == ["predicted_at", "id"]
        assert {group.column(place).compression for place in range(group.num_columns)} == {"ZSTD"}
