"""The command line's framework: a group of commands that imports a noun when it is called."""

import re
from functools import lru_cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from understudy.entrypoints.cli.shared.startup.loading import end_loading
from understudy.entrypoints.cli.shared.startup.nouns import ABOUT, EXIT_CODES, NOUNS, print_help

_PACKAGE = __package__.rpartition(".shared")[0]
_LINE_END = re.compile(r"(?<!\n)\n(?!\n)")
"""An end of a line within a paragraph."""


class NounGroup(TyperGroup):
    """Lists the nouns from the table and loads the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=line) for name, line in NOUNS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the noun's own command in place of its entry in the help."""
        name, stub, rest = super().resolve_command(ctx, args)
        return name, stub if name is None else load(name), rest

    def format_help(self, _ctx: Any, _formatter: Any) -> None:
        """Print the page that is printed where no framework was loaded for it."""
        print_help()


def load(name: str) -> Any:
    """Import a noun's module and return its command."""
    command = _command(name)
    end_loading()
    return command


@lru_cache(maxsize=len(NOUNS))
def _command(name: str) -> Any:
    """Build a noun's command, once for all command lines of a process: it is made of hundreds of options."""
    module = import_module(f"{_PACKAGE}.{name}")
    if hasattr(module, "__path__"):
        module = import_module(f"{module.__name__}.commands")
    command = get_command(module.app)
    command.name = name
    _flow_help(command)
    return command


def _flow_help(command: Any) -> None:
    """Have the paragraphs of a command's help, and of those below it, be as wide as the terminal.

    The framework keeps the ends of lines of all but the first: lines of the source are longer than those of a terminal.
    """
    command.help = None if command.help is None else _LINE_END.sub(" ", command.help)
    for below in getattr(command, "commands", {}).values():
        _flow_help(below)


app = typer.Typer(
    cls=NounGroup,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help=ABOUT,
    epilog=EXIT_CODES,
)


@app.callback()
def root() -> None:
    """Take the options that stand before a noun."""
