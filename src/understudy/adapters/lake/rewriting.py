"""``RewritableTable`` by pyiceberg: files that take the place of others in one change of the table's metadata.

The change is made of the newest metadata, in which each old file is looked up, and the catalogue changes only from
there. So of two processes that replace the same file one succeeds; and rows that another engine deleted meanwhile stay
deleted. One that another commit was faster than looks again, and so may be tried again. The table remembers up to which
number rewrites were given up, so that a thread which outlived its process's lead changes nothing. A reader has a
snapshot, whose files stay until it is expired.
"""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyiceberg import expressions
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, parquet_file_to_data_file
from pyiceberg.table import FileScanTask, Table

from understudy.adapters.archive.parquet_erasure import without_entity
from understudy.adapters.lake.iceberg_table import IcebergTable
from understudy.adapters.lake.parquet_rows import OPTIONS
from understudy.adapters.lake.parquet_rows import SCHEMA as ROWS
from understudy.core.prediction_log.archive_plan import ROWS_ROOT
from understudy.core.prediction_log.erasure import erased_name
from understudy.core.prediction_log.lake_rewrites import TableFile
from understudy.ports.prediction_log.entity_erasure import Erasure

T = TypeVar("T")
GIVEN_UP = "understudy.given-up-rewrite"
"""Property of the table: no rewrite up to this number is taken any more."""
TRIES = 8
"""Of one change while others commit: proxies' files come in every half minute."""
MAX_PAUSE_SECONDS = 2.0
GROUP_ROWS = 100_000
"""Of a row group, which is held in memory; a file has as many as it needs."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
_HOUR = "%Y-%m-%d-%H"
# They take a column's name and a value, which their types do not say.
_EXPRESSIONS: Any = expressions


class IcebergLook:
    """Implements ``ports.TableLook``."""

    def __init__(self, table: Table, tasks: Sequence[FileScanTask], opened: IcebergTable) -> None:
        self._table = table
        self._opened = opened
        self._tasks = {task.file.file_path: task for task in tasks}
        self.files = [_file_of(task) for task in tasks]

    def write_together(self, files: Sequence[TableFile], target: Path) -> int:
        with self._opened.told():
            return _write((part for file in files for part in self._parts(file)), target)

    def count_entity(self, file: TableFile, entity_id: str) -> int:
        with self._opened.told():
            parts = self._parts(file, columns=["entity_id"])
            return sum(pc.sum(pc.equal(part["entity_id"], entity_id)).as_py() or 0 for part in parts)

    def write_erased(self, file: TableFile, target: Path, erasure: Erasure) -> tuple[int, Sequence[str]]:
        name, gone = erased_name(erasure.salt, file.model), list[str]()

        def erased() -> Iterator[Any]:
            for part in self._parts(file):
                yield without_entity(part, erasure, name, gone)

        with self._opened.told():
            _write(erased(), target)
        return len(gone), gone

    def _parts(self, file: TableFile, columns: Sequence[str] | None = None) -> Iterator[Any]:
        """Yield the rows of a file, a row group at a time, with the columns of this release."""
        wanted = ROWS if columns is None else pa.schema([ROWS.field(name) for name in columns])
        if file.deletes:
            # The library applies them, and has the whole file in memory for that.
            reader = ArrowScan(
                self._table.metadata, self._table.io, self._table.schema().select(*wanted.names), AlwaysTrue()
            )
            yield _as(reader.to_table([self._tasks[file.path]]), wanted)
            return
        with self._table.io.new_input(file.path).open() as stream:
            opened = parquet.ParquetFile(stream, page_checksum_verification=True)
            known = [name for name in wanted.names if name in opened.schema_arrow.names]
            for place in range(opened.num_row_groups):
                yield _as(opened.read_row_group(place, columns=known), wanted)


class IcebergRewrites:
    """Implements ``ports.RewritableTable``.

    Args:
        opened: The table.
    """

    def __init__(self, opened: IcebergTable) -> None:
        self._opened = opened

    def look(
        self, first_hour: str | None = None, last_hour: str | None = None, model: str | None = None
    ) -> IcebergLook:
        with self._opened.told():
            table = self._opened.load()
            return IcebergLook(table, _tasks(table, first_hour, last_hour, model), self._opened)

    def replace(self, old: Sequence[TableFile], new_keys: Sequence[str], number: int) -> int | None:
        with self._opened.told():
            return _again(lambda: self._replace(self._opened.load(), old, new_keys, number))

    def _replace(self, table: Table, old: Sequence[TableFile], new_keys: Sequence[str], number: int) -> int | None:
        if _given_up(table) >= number:
            return None
        hours = [file.hour for file in old]
        models = {file.model for file in old}
        tasks = _tasks(table, min(hours), max(hours), models.pop() if len(models) == 1 else None)
        found = {task.file.file_path: task for task in tasks}
        if any(file.path not in found or _deletes_of(found[file.path]) != file.deletes for file in old):
            return None
        with table.transaction() as change:
            properties = {"understudy.rewrite": str(number)}
            with change.update_snapshot(snapshot_properties=properties).overwrite() as files:
                for file in old:
                    files.delete_data_file(found[file.path].file)
                for key in new_keys:
                    files.append_data_file(parquet_file_to_data_file(table.io, table.metadata, self.path_of(key)))
        return _state_of(table)

    def give_up(self, number: int) -> None:
        def remember() -> None:
            table = self._opened.load()
            if _given_up(table) < number:
                with table.transaction() as change:
                    change.set_properties({GIVEN_UP: str(number)})

        with self._opened.told():
            _again(remember)

    def live_among(self, paths: Sequence[str]) -> tuple[set[str], int]:
        with self._opened.told():
            table, wanted = self._opened.load(), set(paths)
            snapshot = table.current_snapshot()
            manifests = [] if snapshot is None else snapshot.manifests(table.io)
            entries = (entry for one in manifests for entry in one.fetch_manifest_entry(table.io, discard_deleted=True))
            live = {entry.data_file.file_path for entry in entries} & wanted
            return live, _state_of(table)

    def count_in(self, path: str, entity_id: str) -> int | None:
        with self._opened.told():
            source = self._opened.load().io.new_input(path)
            if not source.exists():
                return None
            with source.open() as stream:
                names = parquet.read_table(stream, columns=["entity_id"])["entity_id"]
            return pc.sum(pc.equal(names, entity_id)).as_py() or 0

    def path_of(self, key: str) -> str:
        return f"{self._opened.location}/{key}"

    def keys_of(self, paths: Iterable[str]) -> list[str]:
        root = self.path_of("")
        keys = [path.removeprefix(root) for path in sorted(paths) if path.startswith(f"{root}{ROWS_ROOT}/data/")]
        return [key for key in keys if not {"", ".", ".."}.intersection(key.split("/"))]

    def forget_before(self, moment: float | None) -> int:
        with self._opened.told():
            return _again(lambda: self._forget_before(moment))

    def _forget_before(self, moment: float | None) -> int:
        table = self._opened.load()
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        # Their times are of the clocks that committed them: where all are to go, no clock is asked.
        before = _NEVER if moment is None else datetime.fromtimestamp(moment, UTC)
        if any(
            one.snapshot_id not in kept and one.timestamp_ms < before.timestamp() * 1_000
            for one in table.metadata.snapshots
        ):
            # Not by their ids: for each of these the library copies all that it knows of the table, twice.
            table.maintenance.expire_snapshots().older_than(before).commit()
            table = self._opened.load()
        last = _state_of(table)
        return min((one.sequence_number or 0 for one in table.metadata.snapshots), default=last)


def _again(change: Callable[[], T]) -> T:
    """Make a change of the table, again while another commit was faster: that one was refused is certain."""
    for _ in range(TRIES - 1):
        with suppress(CommitFailedException):
            return change()
        time.sleep(random.uniform(0, MAX_PAUSE_SECONDS))
    return change()


def _given_up(table: Table) -> int:
    return int(table.properties.get(GIVEN_UP, "0"))


def _state_of(table: Table) -> int:
    """Return the number of the newest snapshot, in the order of commits."""
    return table.metadata.next_sequence_number() - 1


def _tasks(table: Table, first_hour: str | None, last_hour: str | None, model: str | None) -> list[FileScanTask]:
    """Return the files of some hours, both included, and a model."""
    parts: list[BooleanExpression] = [AlwaysTrue()]
    if first_hour is not None:
        parts.append(_EXPRESSIONS.GreaterThanOrEqual("predicted_at", _moment(first_hour)))
    if last_hour is not None:
        parts.append(_EXPRESSIONS.LessThan("predicted_at", _moment(last_hour) + timedelta(hours=1)))
    if model is not None:
        parts.append(_EXPRESSIONS.EqualTo("model", model))
    condition = parts[0] if len(parts) == 1 else And(*parts)
    return list(table.scan(row_filter=condition, selected_fields=("model",)).plan_files())


def _file_of(task: FileScanTask) -> TableFile:
    hours, model = task.file.partition[0], task.file.partition[1]
    hour = (_EPOCH + timedelta(hours=hours or 0)).strftime(_HOUR)
    size, rows = task.file.file_size_in_bytes, task.file.record_count
    return TableFile(task.file.file_path, model or "", hour, size, rows, _deletes_of(task))


def _deletes_of(task: FileScanTask) -> frozenset[str]:
    return frozenset(one.file_path for one in task.delete_files)


def _moment(hour: str) -> datetime:
    return datetime.strptime(hour, _HOUR).replace(tzinfo=UTC)


def _as(rows: Any, wanted: Any) -> Any:
    """Return rows with these columns; what a file of an earlier release lacks is NULL."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in wanted
    ]
    return pa.table(columns, schema=wanted)


def _write(parts: Iterator[Any], target: Path) -> int:
    """Write rows in row groups of equal size, of which one is in memory."""
    rows, waiting, held = 0, list[Any](), 0
    with parquet.ParquetWriter(target, ROWS, **OPTIONS) as writer:
        for part in parts:
            waiting.append(part)
            held, rows = held + part.num_rows, rows + part.num_rows
            if held >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=GROUP_ROWS)
                waiting, held = [], 0
        if held:
            writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=GROUP_ROWS)
    pa.default_memory_pool().release_unused()
    return rows
