"""A question to the log: by DuckDB over live and archived rows, or by Postgres over those that it holds."""

import asyncio
import csv
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from rich.text import Text

from understudy.bootstrap.prediction_log.archive import gather_log, load_log_query
from understudy.bootstrap.prediction_log.lake_reads import open_lake_query
from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.log.text import result_view
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import advise, csv_cell, show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.cli.shared.session import with_session
from understudy.errors import ArchiveUnavailable
from understudy.ports.prediction_log.log_archive import LogFiles, QueryRefused, WantedRows
from understudy.settings import Settings

_EXAMPLE = "For example: understudy log query 'SELECT model, count(*) FROM predictionlog GROUP BY model' --since 7d"


class Question(NamedTuple):
    """What is asked, and how the answer is printed."""

    sql: str
    wanted: WantedRows
    limit: int
    as_csv: bool
    as_json: bool


def run_query(settings: Settings, question: Question, *, is_live: bool) -> None:
    """Ask and print: Postgres itself where ``is_live``, or where the extra that reads files is not installed.

    Raises:
        CommandRefused: The statement cannot be run.
        ArchiveUnavailable, ArchiveDiffers, RegistryUnavailable, MigrationNeeded: The rows cannot be read.
    """
    try:
        if is_live:
            refuse_in_lake_alone(settings)
            return _ask_postgres(settings, question, "")
        if settings.log_reads == "lake":
            return _ask_lake(settings, question)
        try:
            load_log_query()
        except ArchiveUnavailable as problem:
            advise(f"{problem.detail}, so Postgres itself is asked, in its own SQL")
            return _ask_postgres(settings, question, problem.next_step)
        return _ask_duckdb(settings, question)
    except QueryRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), _EXAMPLE) from None


def refuse_in_lake_alone(settings: Settings) -> None:
    """Refuse what reads Postgres' rows where they are in the lake alone.

    Raises:
        CommandRefused: Always then.
    """
    if settings.is_lake_alone:
        raise CommandRefused(
            ExitCode.USAGE,
            "with UNDERSTUDY_LOG=lake Postgres has only rows with sampled inputs; this would leave out the others",
            "understudy log query and log show read the lake.",
        )


def _ask_duckdb(settings: Settings, question: Question) -> None:
    open_log = load_log_query()
    with tempfile.TemporaryDirectory(prefix="understudy-query-") as folder:
        gathered = asyncio.run(_gather(settings, Path(folder), question.wanted))
        with open_log(gathered, Path(folder), question.wanted) as log:
            seen = log.count()
            about = {"engine": "duckdb", "live_rows": seen.live, "archived_rows": seen.archived}
            _print_answer(question, log.ask(question.sql), about)
    advise(f"{seen.live:,} live rows and {seen.archived:,} archived ones could be seen")


def _ask_lake(settings: Settings, question: Question) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="understudy-query-") as folder,
        progress_bar("reading the lake") as draw,
        open_lake_query(
            settings,
            Path(folder),
            question.wanted,
            lambda rows: draw(description=f"{rows:,} rows of the lake", completed=rows, total=None),
        ) as log,
    ):
        seen = log.count()
        _print_answer(question, log.ask(question.sql), {"engine": "duckdb", "lake_rows": seen.live})
    advise(f"{seen.live:,} rows of the lake could be seen")


def _print_answer(question: Question, asked: Any, about: dict[str, Any]) -> None:
    if question.as_csv:
        _CsvRows(asked.columns).write(asked.rows)
    else:
        _print_rows(question, asked.columns, list(islice(asked.rows, question.limit + 1)), about)


async def _gather(settings: Settings, folder: Path, wanted: WantedRows) -> LogFiles:
    with progress_bar("looking") as draw:

        def on_rows(rows: int, of_rows: int) -> None:
            draw(description=f"{rows:,} live rows", completed=rows, total=of_rows)

        return await gather_log(settings, folder, wanted, on_rows)


def _ask_postgres(settings: Settings, question: Question, advice: str) -> None:
    async def ask(session: Session) -> int:
        async with session.live_log.ask(question.sql, question.wanted) as found:
            if question.as_csv:
                printed = _CsvRows(found.columns)
                async for row in found.rows:
                    printed.write([row])
            else:
                rows = await _first_rows(found.rows, question.limit + 1)
                about = {"engine": "postgres", "unseen_rows": found.unseen_rows}
                _print_rows(question, found.columns, [[_plain(cell) for cell in row] for row in rows], about)
            return found.unseen_rows

    unseen = with_session(ask, settings)
    if unseen:
        advise(
            f"! up to {unseen:,} rows of that time are in the archive, and were not seen", *([advice] if advice else [])
        )


async def _first_rows(rows: AsyncIterator[Sequence[Any]], at_most: int) -> list[Sequence[Any]]:
    found: list[Sequence[Any]] = []
    async for row in rows:
        found.append(row)
        if len(found) == at_most:
            break
    return found


def _plain(cell: Any) -> Any:
    """Return a value of Postgres' as JSON and tables have it; what has no other form is its text."""
    if isinstance(cell, Decimal):
        return int(cell) if cell == cell.to_integral_value() else float(cell)
    if isinstance(cell, bytes):
        return cell.hex()
    return cell


class _CsvRows:
    """Prints rows as CSV, under a line with the columns."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._is_shown = sys.stdout.isatty()
        self.write([columns])

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self._writer.writerow([csv_cell(_plain(cell), is_shown=self._is_shown) for cell in row])


def _print_rows(
    question: Question, columns: Sequence[str], rows: Sequence[Sequence[Any]], about: dict[str, Any]
) -> None:
    is_complete, shown = len(rows) <= question.limit, rows[: question.limit]
    document = {"query": {"columns": columns, "rows": shown, "is_complete": is_complete, **about}}
    words = f"and more: --limit shows more than {question.limit:,}, --csv all"
    more = [] if is_complete else [Text(words, "cyan")]
    show(document, *result_view(columns, shown), *more, as_json=question.as_json)
