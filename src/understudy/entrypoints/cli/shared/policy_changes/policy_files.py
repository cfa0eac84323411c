"""What ``understudy apply`` and ``understudy diff`` share: which files, and values in their tables."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.adapters.files.policies import read_policy_files
from understudy.adapters.files.refusal import FileRefused
from understudy.core.routing.policy_file import PolicyFile
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.texts.policy_text import value_text
from understudy.entrypoints.documents.policies import applied_document, contradiction_document
from understudy.errors import PolicyFileInvalid
from understudy.registry.policy_files import Comparison, value_words

Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        metavar="PATH",
        help="A file of a policy, or a folder of them; - is standard input; may be repeated.",
    ),
]
Paths = Annotated[
    list[Path] | None, typer.Argument(metavar="[PATH]...", help="The same as -f PATH.", show_default=False)
]
MAX_SHOWN = 60
"""Characters of a value in a table; ``--json`` has all of it."""


def read_files(paths: Sequence[Path] | None) -> Sequence[PolicyFile]:
    """Return the policies in files.

    Raises:
        CommandRefused: No path was given, or one is none of a file or folder.
        PolicyFileInvalid: With everything that is wrong with the files, by line and column.
    """
    if not paths:
        raise CommandRefused(ExitCode.USAGE, "no file was named", "Name a file or a folder: -f policy/")
    try:
        found = read_policy_files(paths)
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None
    if found.problems:
        raise PolicyFileInvalid.naming(found.problems)
    return found.files


def shown_value(value: Any) -> str:
    """Return a field's value for a table: none is a dash."""
    words = "-" if value is None else value_text(value) if isinstance(value, tuple) else value_words(value)
    return words if len(words) <= MAX_SHOWN else f"{words[: MAX_SHOWN - 1]}…"


def rows_of_model(model_name: str, rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return rows of one model with its name before the first of them."""
    return [("" if place else model_name, *row) for place, row in enumerate(rows)]


def comparison_document(compared: Comparison) -> dict[str, Any]:
    """Return a policy beside its file as JSON."""
    file, applied = compared.file, compared.applied
    return {
        "file": file.path,
        "line": file.model_place.line,
        "model": file.model_name,
        "generation": compared.generation,
        "differences": {name: list(values) for name, values in compared.differences.items()},
        "contradictions": [contradiction_document(contradiction) for contradiction in compared.contradictions],
        "open_rollout": compared.open_rollout,
        "applied": None if applied is None else applied_document(applied),
    }
