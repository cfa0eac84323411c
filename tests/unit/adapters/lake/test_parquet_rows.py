"""Lines of the spool come back from Parquet as they were logged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyiceberg.io.pyarrow import pyarrow_to_schema
from traffic.spooled_rows import a_row

from understudy.adapters.lake.iceberg_table import SCHEMA as TABLE
from understudy.adapters.lake.parquet_rows import SCHEMA, ParquetRows
from understudy.core.prediction_log.lake import NamedFile, Stretch
from understudy.core.prediction_log.row import COLUMNS
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.ports.prediction_log.lake import VersionName
from understudy.ports.prediction_log.prediction_log import SpooledBatch

HOUR = 3_600
STRETCH = Stretch("lake:a", (1, 0), (1, 9))
NAMES = {1: VersionName("visits", "1"), 2: VersionName("visits", "2"), 3: VersionName("churn", "1")}


def a_batch(lines: Sequence[bytes], columns: Sequence[str] = COLUMNS) -> SpooledBatch:
    return SpooledBatch("a", 1, 0, 9, lines, columns)


def written(
    tmp_path: Path, *batches: SpooledBatch, names: Mapping[int, VersionName] = NAMES
) -> tuple[list[tuple[NamedFile, Any]], int, int]:
    files = ParquetRows(tmp_path / "files")
    left_out = sum(files.add(batch) for batch in batches)
    made, unknown = files.write(STRETCH, names)
    return [(file, parquet.read_table(path)) for file, path in made], left_out, unknown


@pytest.mark.parametrize(
    "text", ["", "\\N", "a\tb", "\\\\t", "\\", "é\n\r\\n", "\\N\\", "N\\\\N", "a\\\\\\tb", '"q"', ","]
)
def test_a_text_is_what_it_was(tmp_path, text):
    [(_, rows)], *_ = written(tmp_path, a_batch([encode_line(a_row()._replace(entity_id=text))]))

    assert rows["entity_id"].to_pylist() == [text]


def test_there_is_a_file_for_each_model_and_hour_with_the_versions_names(tmp_path):
    rows = [a_row(n, version_id=version) for n, version in enumerate((1, 2, 3))]
    late = a_row(3)._replace(predicted_at=a_row().predicted_at + HOUR)

    found, *_ = written(tmp_path, a_batch([encode_line(row) for row in (*rows, late)]))

    assert sorted((file.key.split("/")[2:4], table["version"].to_pylist()) for file, table in found) == [
        (["predicted_at_hour=2025-11-20-17", "model=churn"], ["1"]),
        (["predicted_at_hour=2025-11-20-17", "model=visits"], ["1", "2"]),
        (["predicted_at_hour=2025-11-20-18", "model=visits"], ["1"]),
    ]
    assert {table.schema for _, table in found} == {SCHEMA}
    assert sum(file.row_count for file, _ in found) == 4


def test_lines_that_are_no_rows_and_rows_without_a_name_are_left_out_and_no_others(tmp_path):
    good = [encode_line(a_row(n)) for n in range(5)]
    odd = encode_line(a_row(7))
    lines = [*good[:2], b"half a row\n", *good[2:], odd.replace(b"12999", b"many"), encode_line(a_row(9, version_id=8))]

    [(_, rows)], left_out, unknown = written(tmp_path, a_batch(lines))

    assert rows.num_rows == 5
    assert (left_out, unknown) == (2, 1)


def test_a_segment_of_another_release_may_lack_columns_and_have_others(tmp_path):
    columns = ("entity_id", "model_version_id", "predicted_at", "colour")
    batch = a_batch([b"u\t1\t2025-11-20 17:00:00.5+00\tred\n"], columns)

    [(_, rows)], *_ = written(tmp_path, batch, a_batch([encode_line(a_row())]))

    assert rows["entity_id"].to_pylist() == ["u", "user-1"]
    assert rows["score"].to_pylist() == [None, 0.5]
    assert rows.schema.field("predicted_at").type == pa.timestamp("us", tz="UTC")


def test_what_was_cleared_is_written_no_more(tmp_path):
    files = ParquetRows(tmp_path / "files")
    files.add(a_batch([encode_line(a_row())]))
    files.write(STRETCH, NAMES)

    files.clear()

    assert files.write(STRETCH, NAMES) == ([], 0)
    assert files.version_ids() == []


@pytest.mark.deep
def test_the_same_rows_are_the_same_bytes_however_they_were_read(tmp_path):
    lines = [encode_line(a_row())] * 21_000  # more than a page holds
    texts = []
    for size in (21_000, 499):
        files = ParquetRows(tmp_path)
        for first in range(0, len(lines), size):
            files.add(a_batch(lines[first : first + size]))
        [(_, path)], _ = files.write(STRETCH, NAMES)
        texts.append(path.read_bytes())

    assert texts[0] == texts[1]


def test_every_column_of_a_file_has_the_tables_field_id(tmp_path):
    files = ParquetRows(tmp_path)
    files.add(a_batch([encode_line(a_row())]))
    [(_, path)], _ = files.write(STRETCH, NAMES)
    written_first = pyarrow_to_schema(parquet.read_schema(path))
    late = files.erase(
        NamedFile("k.parquet", 1, 1), path, 4e9, {0: ("erased-1", "0199a1b2-0000-7000-8000-0000000000ff")}
    )

    assert late.row_count == 1
    assert written_first.as_struct() == TABLE.as_struct()
    assert pyarrow_to_schema(parquet.read_schema(path)).as_struct() == TABLE.as_struct()
