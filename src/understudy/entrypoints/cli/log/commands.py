"""``understudy log``: questions to the prediction log, wherever its rows are."""

import asyncio
import csv
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.bootstrap.archive import gather_log, load_log_query
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.progress import progress_bar
from understudy.entrypoints.cli.shared.rendering import Column, a_table, advise, csv_cell, nothing_as, show
from understudy.entrypoints.cli.shared.times import moment_of, seconds_of
from understudy.ports.prediction_log.log_archive import LogFiles, QueryRefused, WantedRows
from understudy.settings import Settings

app = typer.Typer(
    no_args_is_help=True, help="Ask the prediction log; send logged inputs to another version.", add_completion=False
)
_BEGINNING, _END = 0.0, 4_102_444_800.0
"""1970 and 2100: no row is outside."""
_EXAMPLE = "For example: understudy log query 'SELECT model, count(*) FROM predictionlog GROUP BY ALL' --since 7d"


@app.command()
def query(
    *,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over predictionlog, in DuckDB's SQL.")],
    since: Annotated[str | None, typer.Option("--since", help="Only rows from then on: 7d, or a moment.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only rows before then: 1d, or a moment.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Only of this model; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Rows to show at most.")] = 1_000,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every row, as CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a SELECT over all predictions, in Postgres and in the archive, as one table that can only be read.

    Columns are those of PredictionLog without inputs, and model, version and day. Narrow what is read with --since,
    --until and --model: live rows are copied out of Postgres first, 100,000 a second or so.
    """
    settings = settings_with_demo()
    now = time.time()
    wanted = WantedRows(
        _BEGINNING if since is None else moment_of(since, now, "--since"),
        _END if until is None else moment_of(until, now, "--until"),
        tuple(model) if model else None,
    )
    open_log = load_log_query()
    with tempfile.TemporaryDirectory(prefix="understudy-query-") as folder:
        gathered = asyncio.run(_gather(settings, Path(folder), wanted))
        try:
            with open_log(gathered, Path(folder), wanted) as log:
                rows = log.count()
                asked = log.ask(sql)
                if as_csv:
                    _print_csv(asked.columns, asked.rows)
                else:
                    _print_rows(asked.columns, list(islice(asked.rows, limit + 1)), limit, rows, as_json=as_json)
        except QueryRefused as problem:
            raise CommandRefused(ExitCode.USAGE, str(problem), _EXAMPLE) from None
    advise(f"{rows.live:,} live rows and {rows.archived:,} archived ones could be seen")


@app.command()
def replay(
    *,
    model: ModelName,
    version: VersionLabel,
    since: Annotated[str, typer.Option(metavar="TIME", help="Calls from then on: 24h, 2026-11-20.")] = "1d",
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="How many calls, the newest ones.")] = 200,
    from_version: Annotated[
        str | None, typer.Option("--from-version", metavar="VERSION", help="Only calls that this version answered.")
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=64, help="Calls at the same time.")] = 4,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, max=600_000, help="For one call; by default the version's.")
    ] = None,
    within: Annotated[str, typer.Option("--within", metavar="TIME", help="For all of it: 60s, 10m.")] = "60s",
    as_json: AsJson = False,
) -> None:
    """Send logged inputs to a version, and compare what it answers with what was answered then.

    The calls go to the version's model servers directly, and nothing is written: no row of the log, no cache, no
    metric, no window. Leaves with 1 when a call failed or could not be compared.
    """
    # gRPC, scipy and SQLAlchemy: a query of the log needs none of them, and they are a second of its start.
    from understudy.entrypoints.cli.log.replay import run_replay  # noqa: PLC0415
    from understudy.experiments.log_replay import ReplayWanted  # noqa: PLC0415

    now = time.time()
    wanted = ReplayWanted(
        model,
        version,
        from_version,
        moment_of(since, now, "--since"),
        now,
        limit,
        concurrency,
        None if timeout_ms is None else timeout_ms / 1_000,
        seconds_of(within, "--within"),
    )
    run_replay(wanted, as_json=as_json)


async def _gather(settings: Settings, folder: Path, wanted: WantedRows) -> LogFiles:
    with progress_bar("looking") as draw:

        def on_rows(rows: int, of_rows: int) -> None:
            draw(description=f"{rows:,} live rows", completed=rows, total=of_rows)

        return await gather_log(settings, folder, wanted, on_rows)


def _print_csv(columns: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    is_shown = sys.stdout.isatty()
    for row in chain((columns,), rows):
        writer.writerow([csv_cell(cell, is_shown=is_shown) for cell in row])


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[Any]], limit: int, seen: Any, *, as_json: bool) -> None:
    is_complete, shown = len(rows) <= limit, rows[:limit]
    document = {
        "query": {
            "columns": columns,
            "rows": shown,
            "is_complete": is_complete,
            "live_rows": seen.live,
            "archived_rows": seen.archived,
        }
    }
    table = a_table([Column(name) for name in columns], [[nothing_as(cell) for cell in row] for row in shown])
    more = [] if is_complete else [Text(f"and more: --limit shows more than {limit:,}, --csv all", "cyan")]
    show(document, table, *more, as_json=as_json)
