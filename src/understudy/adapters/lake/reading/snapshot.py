"""Rows of one snapshot of the lake's table, as tables of Arrow that fit into memory one after the other.

The library prunes files by the hour, the model and the bounds of columns, reads of each file only the columns and
row groups that are asked for, and applies deletes that another engine wrote.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
from pyiceberg import expressions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.table import FileScanTask, Table

from understudy.adapters.lake.iceberg_table import CATALOGUE, NAME, SCHEMA, catalogue_properties
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
    equal: tuple[tuple[str, str], ...] = ()
    """Further columns that have one value."""
    is_newest_first: bool = False


class LakeSnapshot:
    """The table at one moment; a commit meanwhile changes nothing of it.

    Args:
        table: As it was loaded; ``None`` when the first commit has not made it yet.
    """

    def __init__(self, table: Table | None) -> None:
        self._table = table

    def rows(self, wanted: Wanted) -> Iterator[Any]:
        """Yield the rows, some files at a time, also where these have none; blocks.

        Raises:
            LakeUnavailable: The object store cannot be read.
        """
        if self._table is None:
            return
        with told("the lake's rows cannot be read"):
            known = set(self._table.schema().column_names)
            # A column that this release added is in no file before the first commit after the upgrade.
            columns = tuple(name for name in wanted.columns if name in known)
            scan = self._table.scan(row_filter=_condition(wanted), selected_fields=columns)
            tasks = sorted(scan.plan_files(), key=_hour, reverse=wanted.is_newest_first)
        for some in _in_turns(tasks):
            with told("the lake's rows cannot be read"):
                reader = ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter)
                found = reader.to_table(some)
            for name in wanted.columns:
                if name not in known:
                    found = found.append_column(name, pa.nulls(found.num_rows, pa.string()))
            yield found.select(list(wanted.columns))

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
        _EXPRESSIONS.GreaterThanOrEqual("predicted_at", _moment(wanted.since_us)),
        _EXPRESSIONS.LessThan("predicted_at", _moment(wanted.until_us)),
    ]
    if wanted.models is not None:
        parts.append(_EXPRESSIONS.In("model", list(wanted.models)))
    if wanted.version_ids is not None:
        parts.append(_EXPRESSIONS.In("model_version_id", list(wanted.version_ids)))
    parts += [_EXPRESSIONS.EqualTo(name, value) for name, value in wanted.equal]
    return And(*parts)


def _moment(us: int) -> datetime:
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
