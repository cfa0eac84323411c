"""``understudy diff``: how policies differ from their files."""

from collections.abc import Sequence
from pathlib import Path
from traceback import print_exc

import typer
from rich.text import Text

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson
from understudy.entrypoints.cli.shared.policy_changes.policy_files import (
    Files,
    Paths,
    comparison_document,
    read_files,
    rows_of_model,
    shown_value,
)
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.errors import MigrationNeeded, UnderstudyError
from understudy.registry.policy_files import Comparison, compare, contradiction_words, is_contradicted, rollout_words

app = typer.Typer(add_completion=False)
_COLUMNS = (Column("model"), Column("field"), Column("now"), Column("in the file"), Column("file", drop=1))


@app.command()
def diff(*, paths: Paths = None, file: Files = None, as_json: AsJson = False) -> None:
    """Say how policies differ from their files: leaves with 0 if they do not, with 1 if they do, as diff does."""
    compared = _compared([*(file or ()), *(paths or ())])
    differ = [one for one in compared if one.differences]
    document = {"diff": [comparison_document(one) for one in compared], "equal": not differ}
    table = [a_table(_COLUMNS, [row for one in differ for row in _rows_of(one)])] if differ else []
    show(document, *table, *_notes(compared), _verdict(compared, differ), as_json=as_json)
    raise typer.Exit(ExitCode.PROBLEM if differ else ExitCode.DONE)


def _compared(paths: Sequence[Path] | None) -> list[Comparison]:
    """Return each file beside its policy; a failure must not leave with 1, which says that something differs."""
    try:
        files = read_files(paths)
        return with_control_plane(lambda control_plane: compare(control_plane.registry, control_plane.rollouts, files))
    except MigrationNeeded as problem:
        raise CommandRefused(ExitCode.USAGE, problem.detail, problem.next_step) from problem
    except (UnderstudyError, CommandRefused, ImportError):
        raise
    except Exception as problem:
        print_exc()
        raise typer.Exit(ExitCode.USAGE) from problem


def _rows_of(compared: Comparison) -> list[tuple[str, ...]]:
    file = compared.file
    rows = [
        (name, shown_value(now), shown_value(said), f"{file.path}:{file.places[name].line}")
        for name, (now, said) in compared.differences.items()
    ]
    return rows_of_model(file.model_name, rows)


def _notes(compared: list[Comparison]) -> list[Text]:
    """Say who changed a field beside its file, and which rollout moves what a file would set."""
    notes = [
        f"{one.file.model_name}: {contradiction_words(contradiction, one.applied)}"
        for one in compared
        for contradiction in one.contradictions
    ]
    notes += [rollout_words(one) for one in compared if one.open_rollout is not None]
    return [Text("! ", "yellow").append(note) for note in notes]


def _verdict(compared: list[Comparison], differ: list[Comparison]) -> Text:
    count = len(compared)
    if differ:
        which = "The policy" if count == 1 else f"{len(differ)} of {count} policies"
        words = f"{which} differs from its file" if len(differ) == 1 else f"{which} differ from their files"
        is_refused = any(is_contradicted(one) or one.open_rollout is not None for one in differ)
        then = " --overwrite undoes what others changed; or write it into the file" if is_refused else ""
        return Text(f"{words}. → understudy apply -f PATH{then}")
    words = "the policy is as its file says" if count == 1 else f"all {count} policies are as their files say"
    unknown = sum(one.applied is None for one in compared)
    then = f"; {unknown} {'was' if unknown == 1 else 'were'} never applied from a file" if unknown else ""
    return Text("✔ ", "green").append(f"{words}{then}", "bold")
