"""Options that several commands share, so that they read the same everywhere."""

from typing import Annotated

import typer

from understudy.entrypoints.cli.shared.completion import model_names
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.rendering import is_interactive

ModelName = Annotated[str, typer.Argument(metavar="MODEL", help="The model's name.", autocompletion=model_names)]
VersionLabel = Annotated[str, typer.Argument(metavar="VERSION", help="The version, such as 7.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON, for programs.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
Reason = Annotated[
    str | None, typer.Option("--reason", help="Why; kept in the audit. Needed with --yes, and outside a terminal.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask before production traffic moves.")]
Utc = Annotated[bool, typer.Option("--utc", help="Show moments in UTC instead of how long ago they were.")]
Limit = Annotated[int, typer.Option("--limit", min=1, max=1_000, help="How many to show at most.")]


def required_reason(reason: str | None, *, dry_run: bool, yes: bool = False) -> str | None:
    """Return the reason; a program has to give one, and so has a person who is not asked (``yes``).

    Raises:
        CommandRefused: There is none, and no question at a terminal stands in its place.
    """
    if reason or dry_run or (is_interactive() and not yes):
        return reason
    raise CommandRefused(ExitCode.USAGE, "this change needs a reason", 'Add --reason "why".')


def confirm_traffic_move(model_name: str, what: str, *, yes: bool) -> None:
    """Go on only when ``--yes`` was given, or a person types the model's name; raises as :func:`confirm_by_typing`."""
    confirm_by_typing(model_name, "the model's name", what, yes=yes)


def confirm_by_typing(expected: str, named: str, what: str, *, yes: bool) -> None:
    """Go on only when ``--yes`` was given, or a person types a text.

    Args:
        expected: The text.
        named: What the text is, in words.
        what: Will happen.
        yes: Whether ``--yes`` was given.

    Raises:
        CommandRefused: Neither happened; nothing was changed.
    """
    if yes:
        return
    if not is_interactive():
        raise CommandRefused(ExitCode.USAGE, f"{what}, and there is no terminal to confirm it at", "Add --yes.")
    typer.echo(what, err=True)
    typed = typer.prompt(f"Type {named} to go on, or pass --yes", err=True, default="", show_default=False)
    if typed != expected:
        raise CommandRefused(ExitCode.USAGE, "not confirmed; nothing was changed", f"Type {expected}, or pass --yes.")
