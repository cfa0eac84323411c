"""Which files DuckDB reads itself."""

from typing import Any

import pytest
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.typedef import Record

from understudy.adapters.lake.iceberg_table import SCHEMA
from understudy.adapters.lake.reading.plain_files import Source, source_of

PATH = "/lake/predictionlog/data/a.parquet"
COLUMNS = ("entity_id", "predicted_at", "slices")


def a_table(*earlier: Schema) -> Table:
    made = new_table_metadata(SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///lake")
    metadata = made.model_copy(update={"schemas": [*earlier, *made.schemas]})
    return StaticTable(("understudy", "predictionlog"), metadata, "", None, None)  # type: ignore[arg-type]


def a_file(path: str = f"file://{PATH}", *, lacks: str | None = None, kind: FileFormat = FileFormat.PARQUET) -> Any:
    sizes = {field.field_id: 9 for field in SCHEMA.fields if field.name != lacks}
    return DataFile.from_args(
        content=DataFileContent.DATA, file_path=path, file_format=kind, partition=Record(), record_count=1,
        file_size_in_bytes=9, column_sizes=sizes,
    )  # fmt: skip


def test_a_whole_file_of_a_folder_is_read_by_duckdb_under_its_path():
    source = source_of(a_table(), [FileScanTask(a_file())], COLUMNS)

    assert (source.paths, source.others) == ([PATH], [])


@pytest.mark.parametrize(
    "task",
    [
        FileScanTask(a_file("s3://lake/a.parquet")),
        FileScanTask(a_file("file:///lake/[a].parquet")),
        FileScanTask(a_file(lacks="slices")),
        FileScanTask(a_file(kind=FileFormat.ORC)),
        FileScanTask(a_file(), delete_files={a_file("file:///lake/deletes.parquet")}),
    ],
    ids=["in a bucket", "like a pattern", "without a column", "of another format", "with deleted rows"],
)
def test_the_tables_library_reads_a_file(task):
    source = source_of(a_table(), [task, FileScanTask(a_file())], COLUMNS)

    assert (source.paths, source.others) == ([PATH], [task])


def test_a_file_that_lacks_a_column_which_is_not_asked_for_is_read_by_duckdb():
    source = source_of(a_table(), [FileScanTask(a_file(lacks="score"))], COLUMNS)

    assert (source.paths, source.others) == ([PATH], [])


def test_where_a_column_was_once_called_otherwise_the_tables_library_reads_all_files():
    cuts = SCHEMA.find_field("slices").model_copy(update={"name": "cuts"})
    table, task = a_table(Schema(cuts, schema_id=7)), FileScanTask(a_file())

    assert source_of(table, [task], COLUMNS) == ([], [task])
    assert source_of(table, [task], ["entity_id"]) == ([task], [])


def test_files_are_added_up_in_turns_of_so_many_rows_whoever_reads_them():
    plain, other = FileScanTask(a_file()), FileScanTask(a_file("s3://lake/a.parquet"))
    source = Source([plain] * 3, [other] * 2)

    assert list(source.in_turns(2)) == [([plain] * 2, []), ([plain], [other]), ([], [other])]
    assert list(source.in_turns(0)) == [([plain], [])] * 3 + [([], [other])] * 2
    assert list(Source([], []).in_turns(9)) == [([], [])]
