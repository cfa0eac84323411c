"""``understudy ab outcomes``: outcome events from files."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from understudy.adapters.files.outcomes import open_outcome_file
from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.tables import TableFile
from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.running.progress import progress_bar
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.errors import LoginNotAllowed, RegistryUnavailable
from understudy.experiments.outcome_intake import BadRow, Imported, OutcomeImport, batches

app = typer.Typer(no_args_is_help=True, help="Bring outcome events in.", add_completion=False)
ROWS_SHOWN = 20
ROWS_KEPT = 1_000


@app.callback()
def root() -> None:
    """Keep ``understudy ab outcomes`` a group, though ``import`` is its only command."""


@app.command("import")
def import_outcomes(
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="CSV with a header, or Parquet.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Store the outcome events of a CSV or Parquet file; importing it again adds nothing.

    Columns: event_id, model, entity_id or prediction_id or both, name, value, occurred_at; others are left alone. A row
    that cannot be used is listed with its line, all others are stored; then the command leaves with 1.
    """
    read_settings()  # an environment that cannot be used is named before anything of the file
    done = _Done()
    try:
        with open_outcome_file(file) as opened:
            with_control_plane(
                lambda control_plane: _import(OutcomeImport(control_plane.outcomes, dry_run=dry_run), opened, done)
            )
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None
    except RegistryUnavailable as problem:
        so_far = f"{done.total.rows:,} rows were read before: {done.total.new:,} new"
        first = f"{problem.next_step} " if isinstance(problem, LoginNotAllowed) else ""
        raise type(problem)(
            f"{problem.detail} ({so_far})", hint=f"{first}Import the file again: what is stored counts once."
        ) from problem
    total, bad_rows = done.total, done.bad_rows
    document = {
        "import": {
            "file": str(file),
            **total._asdict(),
            "new_metrics": [{"model": model, "name": name} for model, name in sorted(done.new_metrics)],
            "bad_rows": [
                {"line": row.line, "event_id": row.event_id, "errors": [v._asdict() for v in row.violations]}
                for row in bad_rows
            ],
        },
        "dry_run": dry_run,
    }
    parts = [*_listed(bad_rows, total.bad), *_first_of(done.new_metrics)]
    show(document, _head_text(total, dry_run=dry_run), *parts, _advice(total, file, dry_run=dry_run), as_json=as_json)
    raise typer.Exit(ExitCode.PROBLEM if total.bad else ExitCode.DONE)


def _head_text(total: Imported, *, dry_run: bool) -> Text:
    """Return what became of the rows, or would."""
    head = Text("✖ " if total.bad else "✔ ", "bold red" if total.bad else "green")
    if dry_run:
        head.append(f"{total.rows - total.bad:,} of {total.rows:,} rows can be used; nothing was stored", "bold")
        return head.append(f", {total.bad:,} cannot:" if total.bad else "")
    head.append(f"{total.new:,} new outcome events of {total.rows:,} rows", "bold")
    bad = f", {total.bad:,} cannot be used:" if total.bad else ""
    return head.append(f"; {total.known:,} were there before{bad}")


def _advice(total: Imported, file: Path, *, dry_run: bool) -> Text:
    if total.bad:
        again = "import it" if dry_run else f"import {file.name} again: what is stored counts once"
        return Text(f"→ correct these rows and {again}", "cyan")
    done = "→ the same command without --dry-run stores them"
    return Text(done if dry_run else "→ understudy ab report MODEL --metric NAME", "cyan")


@dataclass
class _Done:
    """How far an import has come, also one that ends with an error."""

    total: Imported = field(default_factory=Imported)
    new_metrics: Collection[tuple[str, str]] = ()
    bad_rows: list[BadRow] = field(default_factory=list)
    """The first of those that cannot be used."""


async def _import(importing: OutcomeImport, file: TableFile, done: _Done) -> None:
    """Take all batches in."""
    with progress_bar("reading", file.size) as draw:
        for batch in batches(file.rows()):
            found = await importing.add(batch)
            done.bad_rows.extend(found[: ROWS_KEPT - len(done.bad_rows)])
            done.total, done.new_metrics = importing.total, importing.new_metrics
            draw(completed=file.position, description=f"{importing.total.rows:,} rows")


def _first_of(metrics: Collection[tuple[str, str]]) -> list[Text]:
    """Say which names no outcome had before: one that is misspelt is a metric of its own."""
    return [
        Text("! ", "yellow").append(f"{name} is the first outcome of that name of {model}: is it meant so?")
        for model, name in sorted(metrics)[:ROWS_SHOWN]
    ]


def _listed(bad_rows: Sequence[BadRow], total: int) -> list[Text]:
    lines = [
        f"  line {row.line:,}: " + "; ".join(f"{v.pointer.lstrip('/')} {v.detail}".strip() for v in row.violations)
        for row in bad_rows[:ROWS_SHOWN]
    ]
    if total > ROWS_SHOWN:
        lines.append(f"  and {total - ROWS_SHOWN:,} more; --json lists up to {ROWS_KEPT:,}")
    return [Text(line) for line in lines]
