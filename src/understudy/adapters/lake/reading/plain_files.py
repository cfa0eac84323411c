"""Which files of the table DuckDB reads itself, and which the table's library has to read for it.

DuckDB decodes Parquet several times as fast, with the memory of its own bound, but knows nothing of the table. So it
gets whole files of a folder whose columns are called what the table calls them. The library reads those of which
another engine deleted rows, those of an earlier release that lack a column, and those in a bucket: DuckDB's reader of
buckets is an extension that would be downloaded.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask, Table

from understudy.adapters.lake.iceberg_table import SCHEMA

_FOLDER = "file://"
_PATTERN = frozenset("*?[")
"""DuckDB takes a path that has one of these for a pattern."""


class Source(NamedTuple):
    """Where rows come from."""

    plain: Sequence[FileScanTask]
    """In a folder of this machine: DuckDB reads them."""
    others: Sequence[FileScanTask]

    @property
    def paths(self) -> list[str]:
        """Where the plain files are."""
        return [task.file.file_path.removeprefix(_FOLDER) for task in self.plain]

    def in_turns(self, rows: int) -> Iterator["Source"]:
        """Yield parts of so many rows, or of one file if that has more; at least one part."""
        some, found = Source([], []), 0
        for task, is_plain in [*((task, True) for task in self.plain), *((task, False) for task in self.others)]:
            if found and found + task.file.record_count > rows:
                yield some
                some, found = Source([], []), 0
            found += task.file.record_count
            some = Source([*some.plain, task], some.others) if is_plain else Source(some.plain, [*some.others, task])
        yield some


def source_of(table: Table, tasks: Iterable[FileScanTask], columns: Iterable[str]) -> Source:
    """Return who reads which file.

    Args:
        table: Whose files they are.
        tasks: What a scan of it has to read.
        columns: That are read of each file, or looked at for a condition.
    """
    ids = {SCHEMA.find_field(name).field_id: name for name in columns}
    # A file may have been written under any name that its column ever had.
    is_renamed = any(
        schema.find_column_name(number) not in (None, name)
        for schema in table.metadata.schemas
        for number, name in ids.items()
    )
    plain, others = list[FileScanTask](), list[FileScanTask]()
    for task in tasks:
        (others if is_renamed or not _is_plain(task, ids) else plain).append(task)
    return Source(plain, others)


def _is_plain(task: FileScanTask, ids: Iterable[int]) -> bool:
    file = task.file
    return (
        not task.delete_files
        and file.file_format == FileFormat.PARQUET
        and file.file_path.startswith(_FOLDER)
        and _PATTERN.isdisjoint(file.file_path)
        and (file.column_sizes or {}).keys() >= set(ids)
    )
