"""One question to the lake: rows of one snapshot in a DuckDB of its own, within a bound of memory and a deadline."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, TypeVar

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.table import FileScanTask

from understudy.adapters.lake.parquet_rows import SCHEMA as ROWS
from understudy.adapters.lake.reading.plain_files import Source
from understudy.adapters.lake.reading.snapshot import LakeReader, LakeSnapshot, Wanted, moment_of, told
from understudy.core.prediction_log.text_hash import text_hashes
from understudy.errors import LakeUnavailable

T = TypeVar("T")
MEMORY_BYTES = 1_000_000_000
"""DuckDB's bound; the rest spills to a temporary folder. Beside it are the rows of a few files."""
SHARE_OF_LIMIT = 4
"""In a container with a limit of memory it is a quarter of that at most: the same process may answer calls."""
SPILLED = "64GB"
"""What a question may spill at most."""
THREADS = 2
ROWS_ADDED_AT_ONCE = 10_000_000
QUESTIONS = 8
"""Of one process at a time. One that was given up counts until its thread has ended: a store that hangs delays that."""
_PLACES = BoundedSemaphore(QUESTIONS)
_LATE_HINT = "Ask for less, with a later --since."


class Question:
    """Tables of one connection, and the snapshot that their rows come from. Every call blocks: see :meth:`Lake.open`.

    Args:
        snapshot: Of the lake's table.
        folder: For what does not fit into memory.
        memory_bytes: DuckDB's bound.
    """

    def __init__(self, snapshot: LakeSnapshot, folder: Path, memory_bytes: int = MEMORY_BYTES) -> None:
        self._snapshot = snapshot
        self._is_over = False
        self._connection = duckdb.connect(":memory:")
        # Extensions that are not built in would be downloaded.
        self.run("SET autoinstall_known_extensions = FALSE; SET autoload_known_extensions = FALSE")
        self.run(f"SET memory_limit = '{memory_bytes}B'; SET threads = {THREADS}; SET preserve_insertion_order = FALSE")
        place = str(folder).replace("'", "''")
        self.run(f"SET temp_directory = '{place}'; SET max_temp_directory_size = '{SPILLED}'")
        functions: Any = self._connection  # its types know no function of arrays
        functions.create_function("hashtextextended", _hashes, ["VARCHAR", "BIGINT"], "BIGINT", type="arrow")

    def run(self, statement: str, values: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement of a constant text, and return its rows."""
        self._check()
        with told("the lake did not answer"):
            return self._connection.execute(statement, dict(values or {})).fetchall()

    def gather(
        self, wanted: Wanted, statement: str, values: Mapping[str, object] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement over ``batch``, which has the snapshot's rows that are wanted, and return its rows."""
        self._check()
        return self._over_files(self._snapshot.source(wanted), wanted, statement, values)

    def add_up(self, wanted: Wanted, statement: str, fold: str) -> None:
        """Run a statement over ``batch`` again and again, some files' rows at a time, and ``fold`` after each time.

        A table of groups is filled so, and folded to one row a group: DuckDB does not add up many times more rows than
        fit into its memory, however few groups they have.
        """
        self._check()
        for place, some in enumerate(self._snapshot.source(wanted).in_turns(ROWS_ADDED_AT_ONCE)):
            self._over_files(some, wanted, statement, None)
            if place:
                self.run(fold)

    def _over_files(
        self, source: Source, wanted: Wanted, statement: str, values: Mapping[str, object] | None
    ) -> list[tuple[Any, ...]]:
        names = ", ".join(wanted.columns)
        parts = [f"SELECT {names} FROM streamed"]  # noqa: S608 - constants
        with told("the lake's rows cannot be read"):
            if source.plain:
                files = self._connection.read_parquet(source.paths, hive_partitioning=False)
                files.filter(_condition(wanted)).create_view("plain", replace=True)
                parts = [f"SELECT {names} FROM plain", *(parts if source.others else ())]  # noqa: S608 - constants
            self._connection.register("streamed", self._streamed(wanted, source.others))
            self._connection.execute(f"CREATE OR REPLACE TEMP VIEW batch AS {' UNION ALL '.join(parts)}")
        try:
            return self.run(statement, values)
        finally:
            self._connection.unregister("streamed")

    def _streamed(self, wanted: Wanted, tasks: Sequence[FileScanTask]) -> pa.RecordBatchReader:
        """Return the rows of files that DuckDB does not read itself, some files after the other."""

        def batches() -> Iterator[pa.RecordBatch]:
            for rows in self._snapshot.rows(wanted, tasks) if tasks else ():
                self._check()
                yield from rows.to_batches()

        schema = pa.schema([ROWS.field(name).remove_metadata() for name in wanted.columns])
        return pa.RecordBatchReader.from_batches(schema, batches())

    def over(self, rows: Any, statement: str, values: Mapping[str, object] | None = None) -> list[tuple[Any, ...]]:
        """Run a statement over ``given``, a table of Arrow."""
        self._connection.register("given", rows)
        try:
            return self.run(statement, values)
        finally:
            self._connection.unregister("given")

    def interrupt(self) -> None:
        """End what runs, from another thread; nothing runs after it."""
        self._is_over = True
        self._connection.interrupt()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _check(self) -> None:
        if self._is_over:
            raise LakeUnavailable("the question was given up")


class Lake:
    """Opens questions.

    Args:
        reader: Of the table.
        timeout_seconds: Longest time of one question, all its steps together.
        limit_bytes: The memory of this container, if that is limited.
    """

    def __init__(self, reader: LakeReader, *, timeout_seconds: float, limit_bytes: int | None = None) -> None:
        self._reader = reader
        self._seconds = timeout_seconds
        self._memory = MEMORY_BYTES if limit_bytes is None else min(MEMORY_BYTES, limit_bytes // SHARE_OF_LIMIT)

    @asynccontextmanager
    async def open(self, seconds: float | None = None) -> AsyncIterator["Steps"]:
        """Open a question; leaving ends it, whatever it is at.

        Args:
            seconds: Less than the time that every question has, for this one.

        Raises:
            LakeUnavailable: The table cannot be read, or the time is over, or too many questions are under way.
        """
        most = self._seconds if seconds is None else min(seconds, self._seconds)
        if not _PLACES.acquire(blocking=False):
            raise LakeUnavailable("too many questions to the lake are under way", hint="Try again in a moment.")
        # A thread of its own: one that waits for a hanging store must not keep others waiting.
        executor = ThreadPoolExecutor(1, "lake-question")
        opened = Steps(executor)
        try:
            async with asyncio.timeout(most):
                await opened.begin(self._reader, self._memory)
                yield opened
        except TimeoutError:
            raise LakeUnavailable(f"the lake did not give the answer within {most:g} s", hint=_LATE_HINT) from None
        finally:
            opened.end()
            executor.shutdown(wait=False)


class Steps:
    """A question whose steps run in a thread, one after the other."""

    def __init__(self, executor: ThreadPoolExecutor) -> None:
        self._executor = executor
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._question: Question | None = None

    async def begin(self, reader: LakeReader, memory_bytes: int) -> None:
        """Open the snapshot."""

        def opened() -> None:
            with told("there is no folder for what does not fit into memory"):
                self._folder = tempfile.TemporaryDirectory(prefix="understudy-lake-", ignore_cleanup_errors=True)
            self._question = Question(reader.snapshot(), Path(self._folder.name), memory_bytes)

        await asyncio.get_running_loop().run_in_executor(self._executor, opened)

    async def do(self, step: Callable[[Question], T]) -> T:
        """Run a step, and return what it returns."""
        question = self._question
        assert question is not None, "it was begun"
        return await asyncio.get_running_loop().run_in_executor(self._executor, step, question)

    def end(self) -> None:
        """Break off the step that runs; what the question had is deleted once that has ended."""
        if self._question is not None:
            self._question.interrupt()
        self._executor.submit(self._clean_up)

    def _clean_up(self) -> None:
        try:
            with suppress(Exception):
                if self._question is not None:
                    self._question.close()
            if self._folder is not None:
                self._folder.cleanup()
            # Arrow keeps what it gave back for the next time.
            pa.default_memory_pool().release_unused()
        finally:
            _PLACES.release()


def _condition(wanted: Wanted) -> duckdb.Expression:
    """Return the condition by which rows are wanted, which is pushed into the files."""
    column, constant = duckdb.ColumnExpression, duckdb.ConstantExpression
    at = column("predicted_at")
    condition = (at >= constant(moment_of(wanted.since_us))) & (at < constant(moment_of(wanted.until_us)))
    for name, values in wanted.among.items():
        condition &= column(name).isin(*map(constant, values)) if values else constant(False)
    for name, value in wanted.equal:
        condition &= column(name) == constant(value)
    return condition


def _hashes(texts: Any, seeds: Any) -> Any:
    """Postgres' function of that name, for DuckDB; no text is NULL, and the seed is one."""
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    data, offsets = arrow_texts(array)
    return pa.array(text_hashes(data, offsets, seeds[0].as_py()), pa.int64())


def arrow_texts(array: Any) -> tuple[Any, Any]:
    """Return the bytes of an array of texts, and where each begins."""
    large = array.cast(pa.large_string())
    _, offsets, data = large.buffers()
    places = np.frombuffer(offsets, np.int64)[large.offset : large.offset + len(large) + 1]
    return np.frombuffer(data or b"", np.uint8), places


def micros(seconds: float) -> int:
    """Return a moment in microseconds as Postgres' ``to_timestamp`` rounds it, which counts from the year 2000."""
    since_2000 = 946_684_800
    return round((seconds - since_2000) * 1e6) + since_2000 * 1_000_000


def span_us(seconds: float) -> int:
    """Return a length of time in microseconds, as Postgres' ``make_interval`` rounds it."""
    return round(seconds * 1e6)


def ids_of(values: Sequence[int | None]) -> list[int]:
    """Return those that there are."""
    return [value for value in values if value is not None]
