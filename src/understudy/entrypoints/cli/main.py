"""The ``understudy`` command.

Its own help and version need no framework. A noun's module, and with it Postgres, gRPC or the web framework, is
imported when the noun is used; a package that is not installed is named with the extra that brings it.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from understudy import __version__
from understudy.entrypoints.cli.shared.startup import extras
from understudy.entrypoints.cli.shared.startup.loading import INTERRUPTED, end_command
from understudy.entrypoints.cli.shared.startup.nouns import print_help

_HELP = (["--help"], ["-h"])
UNREAD = 1
"""The exit code of a command whose output has no reader any more; rich has the same."""
_COMPLETING = "_UNDERSTUDY_COMPLETE"
"""Set by a shell that wants to know how a line could go on."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    given = list(arguments)
    if given in _HELP or (not given and _COMPLETING not in os.environ):
        print_help()
        return 0 if given else extras.EXIT_CODE
    if given == ["--version"]:
        sys.stdout.write(f"understudy {__version__}\n")
        return 0
    try:
        return _run_noun(given)
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as problem:
        extra = extras.missing_extra(problem.name or "", given)
        if extra is None:
            raise
        extras.report_missing(problem.name or "", extra, given)
        return extras.EXIT_CODE


def _run_noun(arguments: list[str]) -> int:
    from understudy.entrypoints.cli.shared.errors import CommandRefused, report  # noqa: PLC0415 - after the help
    from understudy.entrypoints.cli.shared.startup.noun_group import app  # noqa: PLC0415 - the framework
    from understudy.errors import UnderstudyError  # noqa: PLC0415 - as above

    try:
        _require_text(arguments)
        if "--json" in arguments:
            return _run_for_programs(app, arguments)
        app(args=arguments, prog_name="understudy")
    except (UnderstudyError, CommandRefused) as problem:
        return report(problem, as_json="--json" in arguments)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _run_for_programs(app: Any, arguments: Sequence[str]) -> int:
    """Run a command whose errors of usage are told as every other one is to programs, and not in a box."""
    from typer import Abort, BadParameter  # noqa: PLC0415 - after the help

    from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode  # noqa: PLC0415 - as above

    usage: Any = BadParameter.__mro__[1]  # each release of the framework has it in another module
    try:
        code = app(args=arguments, prog_name="understudy", standalone_mode=False)
    except Abort:
        return INTERRUPTED
    except usage as problem:
        where = "understudy" if problem.ctx is None else problem.ctx.command_path
        raise CommandRefused(ExitCode.USAGE, problem.format_message(), f"{where} --help shows what it takes.") from None
    return code if isinstance(code, int) else 0


def _require_text(arguments: Sequence[str]) -> None:
    from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode  # noqa: PLC0415 - after the help

    for place, argument in enumerate(arguments, 1):
        if any("\ud800" <= character <= "\udfff" for character in argument):
            detail = f"argument {place} is not text in UTF-8: {argument!a}"
            raise CommandRefused(ExitCode.USAGE, detail, "Type it in UTF-8; the terminal's locale says what it sends.")


def _without_a_reader() -> int:
    """Let what is still to be written go nowhere: ``understudy log tail | head`` has read enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNREAD


def main() -> None:
    """Run the command line of this process."""
    try:
        code = run(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:
        code = _without_a_reader()
    if threading.current_thread() is threading.main_thread():
        end_command()
    sys.exit(code)
