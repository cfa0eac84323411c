"""``understudy log``: questions to the prediction log, wherever its rows are."""

import time
from collections.abc import Sequence
from shlex import quote
from typing import Annotated

import typer
from rich.text import Text

from understudy.bootstrap.session import Session
from understudy.entrypoints.cli.log.query import Question, refuse_in_lake_alone, run_query
from understudy.entrypoints.cli.log.tail import MAX_CALLS, Told, follow
from understudy.entrypoints.cli.log.text import CallLines
from understudy.entrypoints.cli.shared.completion import model_names
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.rendering import advise, data_console, facts, print_json, show
from understudy.entrypoints.cli.shared.running.reminder import Reminder
from understudy.entrypoints.cli.shared.session import with_session
from understudy.entrypoints.cli.shared.texts.receipt_text import checked_by, receipt_facts, receipt_sentence
from understudy.entrypoints.cli.shared.times import moment_of, seconds_of
from understudy.entrypoints.documents.calls import call_document, explained_document
from understudy.ports.prediction_log.live_log import CallLine, NewestAsked
from understudy.ports.prediction_log.log_archive import WantedRows
from understudy.registry.receipts import Explained, explain_prediction

app = typer.Typer(
    no_args_is_help=True,
    help="Ask the prediction log, follow it; send logged inputs to another version.",
    add_completion=False,
)
_BEGINNING, _END = 0.0, 4_102_444_800.0
"""1970 and 2100: no row is outside."""


@app.command()
def query(
    *,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT over predictionlog.")],
    since: Annotated[str | None, typer.Option("--since", help="Only rows from then on: 7d, or a moment.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only rows before then: 1d, or a moment.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Only of this model; may be repeated.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="Rows to show at most.")] = 1_000,
    live: Annotated[
        bool, typer.Option("--live", help="Ask Postgres itself, in its own SQL: at once, and without old months.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print every row, as CSV.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a SELECT over all predictions, in Postgres and in the archive, as one table that can only be read.

    Columns are those of PredictionLog without inputs, and model, version and day. Narrow what is read with --since,
    --until and --model: live rows are copied out of Postgres first, 100,000 a second or so. With --live, and where the
    extra archive is not installed, nothing is copied: Postgres answers, from the rows that it holds.
    """
    settings = settings_with_demo()
    now = time.time()
    wanted = WantedRows(
        _BEGINNING if since is None else moment_of(since, now, "--since"),
        _END if until is None else moment_of(until, now, "--until"),
        tuple(model) if model else None,
    )
    run_query(settings, Question(sql, wanted, limit, as_csv, as_json), is_live=live)


@app.command("show")
def show_call(
    *, prediction_id: Annotated[str, typer.Argument(metavar="ID", help="A prediction_id.")], as_json: AsJson = False
) -> None:
    """Say why a call got its answer: version, bucket, policy, cache, fallback, and what a shadow made of it."""

    async def read(session: Session) -> tuple[Explained, dict[int, str]]:
        found = await explain_prediction(session.registry, session.receipts, prediction_id)
        versions = await session.registry.list_versions(found.answer.model_name)
        return found, {version.id: version.version for version in versions}

    found, labels = with_session(read)
    head = Text(receipt_sentence(found.answer), "bold")
    model, entity = quote(found.answer.model_name), quote(found.answer.entity_id)
    then = [Text(f"→ understudy explain {model} {entity} says who answers this entity now", "cyan")]
    if command := checked_by(found.answer):
        then.insert(0, Text(f"→ {command} says more about its model servers", "cyan"))
    show(explained_document(found), head, facts(receipt_facts(found, labels)), *then, as_json=as_json)


@app.command()
def tail(
    *,
    model: Annotated[
        str | None, typer.Argument(metavar="[MODEL]", help="Only this model's calls.", autocompletion=model_names)
    ] = None,
    version: Annotated[
        str | None, typer.Option("--version", metavar="VERSION", help="Only calls that this version answered.")
    ] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Only calls with an error code.")] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=1, max=1_000, help="How many calls, the newest.")] = 20,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back: 1d, or a moment.")] = "1d",
    follow_it: Annotated[bool, typer.Option("--follow", "-f", help="Go on with each call that comes.")] = False,
    as_lines: Annotated[bool, typer.Option("--json-lines", help="Print a line of JSON for each call.")] = False,
) -> None:
    """Show the newest calls of the log, one line each; times are in UTC. Ctrl-C ends --follow."""
    refuse_in_lake_alone(settings_with_demo(tell=lambda _: None))  # the session says which demo it is
    asked = NewestAsked(moment_of(since, time.time(), "--since"), lines, model, version, failed)
    printed, console = CallLines(model), data_console()

    def tell(calls: Sequence[CallLine]) -> None:
        for call in calls if as_lines else ():
            print_json({"call": call_document(call)})
        for text in () if as_lines else printed.texts(calls):
            console.print(text, soft_wrap=True)

    async def read(session: Session) -> None:
        if model is not None:
            await session.registry.show_model(model)
        if model is not None and version is not None:
            await session.registry.show_version(model, version)
        if follow_it:
            reminder = Reminder()
            await follow(session.live_log, asked, Told(tell, _skipped, lambda: reminder.away(0.0)))
            return
        calls = await session.live_log.newest(asked)
        tell(calls)
        if not calls:
            advise(f"no such call since {since}; --since reads further back")

    try:
        with_session(read)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _skipped() -> None:
    advise(f"… more than {MAX_CALLS:,} calls came; the newest of them follow")


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
    settings = settings_with_demo()
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
    run_replay(settings, wanted, as_json=as_json)
