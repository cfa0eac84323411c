"""The ``understudy`` command: a table of nouns.

A noun's module, and with it Postgres, gRPC or the web framework, is imported when the noun is used, so that
``understudy --help`` stays fast.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from understudy import __version__
from understudy.entrypoints.cli.shared.errors import CommandRefused, report
from understudy.errors import UnderstudyError

NOUNS = {
    "demo": "Start everything on this machine: a first prediction, a rollback, a promotion.",
    "serve": "Run a process of Understudy: the proxy, the monitor.",
    "modelserver": "Run the development model server.",
    "db": "Bring the database's schema up to date, check it, archive, open a SQL prompt.",
    "version": "Register, compare, check, list, show and retire model versions.",
    "model": "List and show models; set who answers their calls.",
    "examples": "Register the example models, and call them steadily.",
    "ab": "Plan A/B tests, report on them, bring outcomes in.",
    "shadow": "Compare the shadow's answers with the champion's.",
    "drift": "Say what drifted, and set baselines.",
    "plan": "Say how risky a rollout is, and how long it would take.",
    "rollout": "Start, follow and steer rollouts.",
    "rollback": "Send all traffic of a model back, at once.",
    "predict": "Make one predict call, and say who answered it.",
    "explain": "Say why an entity gets its answer, or what an error code means.",
    "log": "Ask the prediction log; send logged inputs to another version.",
    "entity": "Erase an entity from all that is kept of it.",
    "audit": "List who changed what, when and why.",
    "key": "Create, list and revoke callers' keys.",
    "doctor": "Check everything this installation depends on.",
}
"""Each noun's line in the help. Its module has its name: ``cli/<noun>.py``, or ``cli/<noun>/commands.py``."""


class NounGroup(TyperGroup):
    """Lists the nouns from the table and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in NOUNS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the noun's own command in place of its entry in the help."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub if name is None else load(name), rest


def load(name: str) -> Any:
    """Import a noun's module and return its command."""
    module = import_module(f"{__package__}.{name}")
    if hasattr(module, "__path__"):
        module = import_module(f"{module.__name__}.commands")
    command = get_command(module.app)
    command.name = name
    return command


app = typer.Typer(
    cls=NounGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Understudy routes each predict call to a champion or a challenger model, shows it to a shadow, and logs it.",
    epilog="Exit codes: 0 done, 1 problem found, 2 usage, 3 rolled back or degraded, 4 not found, 5 conflict, "
    "6 undecided, 7 not allowed, 69 unreachable, 130 interrupted.",
)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the framework calls it with the option's value
    if asked:
        typer.echo(f"understudy {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Take the options that stand before a noun."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        app(args=list(arguments), prog_name="understudy")
    except (UnderstudyError, CommandRefused) as problem:
        return report(problem, as_json="--json" in arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def main() -> None:
    """Run the command line of this process."""
    sys.exit(run(sys.argv[1:]))
