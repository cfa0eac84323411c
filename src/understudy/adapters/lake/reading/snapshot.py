"""Rows of one snapshot of the lake's table: the paths of files, or tables of Arrow that fit into memory one by one.

The library prunes files by the hour, the model and the bounds of columns. What it reads itself it reads by the columns
and row groups that are asked for, with the deletes that another engine wrote.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import DataScan, FileScanTask, Table

from understudy.adapters.lake.iceberg_table import CATALOGUE, NAME, SCHEMA, catalogue_properties
from understudy.adapters.lake.parquet_rows import SCHEMA as ROWS
from understudy.adapters.lake.reading.plain_files import Source, source_of
from understudy.errors import LakeUnavailable

ROWS_AT_ONCE = 1_000_000
BYTES_AT_ONCE = 1 << 27
FILES_AT_ONCE = 200
"""Files are read together until they have so many rows or bytes, or are so many; a file that has more is read alone.
Between such turns a question can be given up."""
ALL_COLUMNS = tuple(SCHEMA.column_names)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# They take a column's name and a value, which their types do not say.
_EXPRESSIONS: Any = expressions


class Wanted(NamedTuple):
    """Which rows and columns; times in microseconds since the epoch, ``until`` excluded."""

    columns: Sequence[str]
    since_us: int
    until_us: int
    models: Sequence[str] | None = None
    version_ids: Sequence[int] | None = None
    """That answered."""
    assigned_ids: Sequence[int] | None = None
    """That the call was assigned to."""
    equal: tuple[tuple[str, str], ...] = ()
    """Further columns that have one value."""

    @property
    def among(self) -> Mapping[str, Sequence[object]]:
        """Columns that have one of some values."""
        found = {
            "model": self.models,
            "model_version_id": self.version_ids,
            "assigned_version_id": self.assigned_ids,
        }
        return {name: values for name, values in found.items() if values is not None}

    @property
    def read(self) -> Sequence[str]:
        """All columns that have to be read for it."""
        return sorted({*self.columns, "predicted_at", *self.among, *(name for name, _ in self.equal)})


class LakeSnapshot:
    """The table at one moment; a commit meanwhile changes nothing of it.

    Args:
        table: As it was loaded; ``None`` when the first commit has not made it yet.
    """

    def __init__(self, table: Table | None) -> None:
        self._table = table

    def source(self, wanted: Wanted) -> Source:
        """Return which files have the rows, and who reads them; blocks.

        Raises:
            LakeUnavailable: The object store cannot be read.
        """
        with told("the lake's rows cannot be read"):
            if self._table is None:
                return Source((), ())
            return source_of(self._table, self._planned(wanted), wanted.read)

    def rows(self, wanted: Wanted, tasks: Iterable[FileScanTask] | None = None) -> Iterator[Any]:
        """Yield the rows, some files at a time, also where these have none; blocks.

        Args:
            wanted: Which rows.
            tasks: The files to read, all by default.

        Raises:
            LakeUnavailable: The object store cannot be read.
        """
        if self._table is None:
            return
        wanted_schema = pa.schema([ROWS.field(name).remove_metadata() for name in wanted.columns])
        with told("the lake's rows cannot be read"):
            if tasks is None:
                tasks = self._planned(wanted)
            scan = self._scan(wanted)
        for some in _in_turns(tasks):
            with told("the lake's rows cannot be read"):
                reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
                found = reader.to_table(some)
                for field in wanted_schema:
                    # A column that this release added is in no file before the first commit after the upgrade.
                    if field.name not in found.column_names:
                        found = found.append_column(field, pa.nulls(found.num_rows, field.type))
                found = found.select(wanted_schema.names).cast(wanted_schema)
            yield found

    def _planned(self, wanted: Wanted) -> list[FileScanTask]:
        return sorted(self._scan(wanted).plan_files(), key=_hour)

    def _scan(self, wanted: Wanted) -> DataScan:
        assert self._table is not None, "it was looked at"
        known = set(self._table.schema().column_names)
        columns = tuple(name for name in wanted.columns if name in known)
        return self._table.scan(row_filter=_condition(wanted), selected_fields=columns)

    @staticmethod
    def empty() -> Any:
        """Return a table with all columns and no row."""
        return schema_to_pyarrow(SCHEMA, include_field_ids=False).empty_table()


class LakeReader:
    """Opens the table for reading; it makes none, and needs no right to write.

    Args:
        database_url: Where the catalogue is.
        location: Of the lake.
        endpoint: Of S3, when it is not Amazon's.
        timeout_seconds: Longest time of one statement, and of one request to S3.
    """

    def __init__(self, database_url: str, location: str, *, endpoint: str | None, timeout_seconds: float) -> None:
        self._properties = catalogue_properties(database_url, location, endpoint, timeout_seconds)

    def snapshot(self) -> LakeSnapshot:
        """Return the table as it is now; blocks.

        Raises:
            LakeUnavailable: The catalogue or the object store cannot be read.
        """
        with told("the lake's table cannot be opened"):
            catalogue = SqlCatalog(CATALOGUE, **self._properties)
            try:
                return LakeSnapshot(catalogue.load_table(NAME))
            except NoSuchTableError:
                return LakeSnapshot(None)
            finally:
                catalogue.close()


@contextmanager
def told(what: str) -> Iterator[None]:
    """Raise what the libraries raise as ``LakeUnavailable``: they have no common error."""
    try:
        yield
    except LakeUnavailable:
        raise
    except Exception as problem:
        first = (str(problem).strip().splitlines() or [""])[0][:300]
        raise LakeUnavailable(f"{what}: {type(problem).__name__}: {first}") from problem


def _condition(wanted: Wanted) -> BooleanExpression:
    parts: list[BooleanExpression] = [
        _EXPRESSIONS.GreaterThanOrEqual("predicted_at", moment_of(wanted.since_us)),
        _EXPRESSIONS.LessThan("predicted_at", moment_of(wanted.until_us)),
    ]
    parts += [_EXPRESSIONS.In(name, list(values)) for name, values in wanted.among.items()]
    parts += [_EXPRESSIONS.EqualTo(name, value) for name, value in wanted.equal]
    return And(*parts)


def moment_of(us: int) -> datetime:
    """Return the moment that is so many microseconds after the epoch."""
    return _EPOCH + timedelta(microseconds=us)


def _hour(task: FileScanTask) -> int:
    hour = task.file.partition[0]
    return 0 if hour is None else int(hour)


def _in_turns(tasks: Iterable[FileScanTask]) -> Iterator[list[FileScanTask]]:
    some, rows, size = list[FileScanTask](), 0, 0
    for task in tasks:
        rows += task.file.record_count
        size += task.file.file_size_in_bytes
        if some and (rows > ROWS_AT_ONCE or size > BYTES_AT_ONCE or len(some) == FILES_AT_ONCE):
            yield some
            some, rows, size = [], task.file.record_count, task.file.file_size_in_bytes
        some.append(task)
    if some:
        yield some
