"""``understudy entity``: erases one entity from the log and the archive, and shows what is left of it."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.text import Text

from understudy.bootstrap.prediction_log.erasure import open_eraser
from understudy.core.prediction_log.erasure import Erased, names_entity
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, Reason, confirm_by_typing, required_reason
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.cli.shared.running.stopping import stopped_by_signals
from understudy.retention.entity_eraser import Found, Left, Result

app = typer.Typer(no_args_is_help=True, help="Erase an entity from all that is kept of it.", add_completion=False)
ALL = "all"
"""In place of a model's name."""
MAX_MONTHS = 12
"""Of one place, named to a person."""


@app.callback()
def entity() -> None:
    """Make ``forget`` a command of its own, though it is the only one."""


@app.command()
def forget(
    *,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model's name; all for every model.")],
    entity_id: Annotated[str, typer.Argument(metavar="ENTITY", help="The entity's id, exactly as callers send it.")],
    archive: Annotated[
        list[str] | None,
        typer.Option(
            "--archive", help="s3://bucket/prefix or a folder with archived months, beside UNDERSTUDY_ARCHIVE_URL."
        ),
    ] = None,
    lake_erased: Annotated[
        bool, typer.Option("--lake-erased", help="An engine has deleted the entity's rows from the lake's table.")
    ] = False,
    dry_run: DryRun = False,
    reason: Reason = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is erased.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase an entity's name and inputs from log, outcomes, archive and lake; its calls stay, without a name.

    Stopped at any moment, the next run goes on where this one was. Nothing brings the entity back.
    """
    if not 0 < len(entity_id) <= 255:  # noqa: PLR2004 - as callers may send
        raise CommandRefused(ExitCode.USAGE, "an entity id has 1 to 255 characters", "Name the id that callers send.")
    required_reason(reason, dry_run=dry_run, yes=yes)
    if reason and names_entity(reason, entity_id):
        raise CommandRefused(
            ExitCode.USAGE, "the reason has the entity's id in it, and reasons are kept", "Name a request instead."
        )
    of = "every model" if model == ALL else model
    if not dry_run:
        confirm_by_typing(entity_id, "the entity's id", f"{entity_id} will be erased from {of} for good", yes=yes)
    of_model = None if model == ALL else model
    with stopped_by_signals():
        came = asyncio.run(
            _run(of_model, entity_id, archive or [], reason, dry_run=dry_run, is_lake_erased=lake_erased)
        )
    if isinstance(came, Found):
        show(_found_document(model, came), *_found_texts(entity_id, of, came), as_json=as_json)
    else:
        show(_result_document(model, came), *_result_texts(entity_id, of, came), as_json=as_json)
    if came.left or (came.lake and not lake_erased):
        raise typer.Exit(ExitCode.PROBLEM)


async def _run(
    model_name: str | None,
    entity_id: str,
    archives: list[str],
    reason: str | None,
    *,
    dry_run: bool,
    is_lake_erased: bool,
) -> Found | Result:
    settings = settings_with_demo()
    with progress_bar("looking") as draw:

        def on_progress(doing: str, done: int, of: int) -> None:
            draw(description=doing, completed=done, total=of)

        async with open_eraser(settings, archives, on_progress) as eraser:
            if dry_run:
                return await eraser.find(model_name, entity_id)
            return await eraser.run(model_name, entity_id, reason, is_lake_erased=is_lake_erased)


# The documents do not repeat the id: a program that keeps them would keep it.
def _found_document(model: str, found: Found) -> dict[str, Any]:
    rows = found.rows._asdict() | {"archived_rows": found.archived_rows, "files": found.files}
    rows |= {"lake_rows": found.lake_rows, "lake_files": found.lake_files}
    left = _left_document(found.left)
    return {"erasure": {"model": model, "dry_run": True, "rows": rows, "left": left, "lake": found.lake}}


def _result_document(model: str, result: Result) -> dict[str, Any]:
    return {
        "erasure": {
            "model": model,
            "dry_run": False,
            "id": result.erasure_id,
            "resumed": result.is_resumed,
            "finished": result.is_finished,
            "rows": result.erased._asdict(),
            "texts": result.texts,
            "left": _left_document(result.left),
            "lake": result.lake,
        }
    }


def _left_document(left: Sequence[Left]) -> list[dict[str, Any]]:
    return [one._asdict() for one in left]


def _found_texts(entity_id: str, of: str, found: Found) -> list[Any]:
    head = Text(f"Would erase {entity_id} from {of}; nothing was changed.", "bold")
    rows = found.rows
    beside = (rows.outcomes, rows.dead_letters, found.lake_rows, found.lake_files)
    would = Erased(rows.log_rows, rows.kept_rows, found.archived_rows, found.files, *beside)
    texts: list[Any] = [head, _table(would)]
    if found.left:
        texts += ["", Text("Could not look into:", "bold red"), *_left_texts(found.left)]
    return texts + _lake_texts(found.lake)


def _result_texts(entity_id: str, of: str, result: Result) -> list[Any]:
    if result.is_finished and result.lake:
        head = Text("✖ ", "bold red").append(f"{entity_id} is erased from {of}, and not from the lake", "bold")
    elif result.is_finished:
        head = Text("✔ ", "green").append(f"{entity_id} is erased from {of}", "bold")
    else:
        head = Text("✖ ", "bold red").append(f"{entity_id} is not erased everywhere yet: {of}", "bold")
    texts: list[Any] = [head, _table(result.erased), *_texts_text(result.texts)]
    if result.left:
        texts += ["", Text("May still name it:", "bold red"), *_left_texts(result.left)]
        texts += [Text("→ ", "cyan").append("see to these, then run the command again: it goes on from here")]
    return texts + _lake_texts(result.lake)


def _lake_texts(lake: str | None) -> list[Any]:
    if lake is None:
        return []
    step = "set UNDERSTUDY_LAKE_URL and run this again; or delete its rows by an engine, and use --lake-erased"
    return [
        "",
        Text("The log's table in a lake still names it, and UNDERSTUDY_LAKE_URL is not set:", "bold red"),
        Text(f"  {lake}"),
        Text("→ ", "cyan").append(step),
    ]


def _table(erased: Erased) -> Any:
    rows = [
        ("rows of the log", f"{erased.log_rows:,}"),
        ("the same, in tables of archived months", f"{erased.kept_rows:,}"),
        (f"rows in {_files(erased.files, 'archived ')}", f"{erased.archived_rows:,}"),
        (f"rows in {_files(erased.lake_files)} of the lake", f"{erased.lake_rows:,}"),
        ("outcomes", f"{erased.outcomes:,}"),
        ("dead letters", f"{erased.dead_letters:,}"),
    ]
    return a_table([Column("where"), Column("rows", right=True)], rows)


def _files(count: int, kind: str = "") -> str:
    return f"{count:,} {kind}file{'' if count == 1 else 's'}"


def _texts_text(texts: int) -> list[Any]:
    if not texts:
        return []
    if texts == 1:
        return ["1 reason or note that people wrote has the id in it, and stays."]
    return [f"{texts:,} reasons or notes that people wrote have the id in them, and stay."]


def _left_texts(left: Sequence[Left]) -> list[Text]:
    """Return a line for each place and reason, with the months under it."""
    months: dict[str, list[str]] = {}
    for one in left:
        months.setdefault(f"{one.location}: {one.why}", []).append(one.partition_name)
    texts = []
    for place, names in months.items():
        shown = names[:MAX_MONTHS] + ([f"and {len(names) - MAX_MONTHS} more"] if len(names) > MAX_MONTHS else [])
        texts += [Text(f"  {place}"), Text(f"    {', '.join(shown)}")]
    return texts
