"""What a command that fails prints, and its exit code."""

import sys
from collections.abc import Mapping
from enum import IntEnum
from typing import Any

import orjson
from rich.text import Text

from understudy.entrypoints.cli.shared.hints import next_command
from understudy.entrypoints.cli.shared.rendering import advice_console
from understudy.entrypoints.documents.json_text import SCHEMA
from understudy.errors import (
    AlreadyRegistered,
    ArchiveBusy,
    ArchiveUnavailable,
    ArtifactForbidden,
    ArtifactUnreachable,
    BackendUnavailable,
    DatabaseNeeded,
    DataWouldBeLost,
    DeclaredOtherwise,
    FeaturesUnavailable,
    GenerationMoved,
    LakeUnavailable,
    LoginNotAllowed,
    MigrationBlocked,
    MigrationNeeded,
    NotRegistered,
    PolicyContradicted,
    PolicyFileInvalid,
    PolicyRefused,
    RegistryUnavailable,
    RequestError,
    SchemaInvalid,
    SchemaNotTold,
    ScopeMissing,
    ServerNotManageable,
    ServingError,
    SourceAway,
    Unauthenticated,
    UnderstudyError,
    UnknownModel,
    UnknownRoute,
    UnknownVersion,
    VersionInUse,
)

MAX_SHOWN = 20
"""Problems of files that a terminal is told."""


class ExitCode(IntEnum):
    """How a command ended; scripts rely on the numbers."""

    DONE = 0
    PROBLEM = 1
    USAGE = 2
    DEGRADED = 3
    NOT_FOUND = 4
    CONFLICT = 5
    UNDECIDED = 6
    NOT_ALLOWED = 7
    UNREACHABLE = 69
    INTERRUPTED = 130


EXIT_CODES: Mapping[type[UnderstudyError], ExitCode] = {
    UnknownModel: ExitCode.NOT_FOUND,
    UnknownVersion: ExitCode.NOT_FOUND,
    UnknownRoute: ExitCode.NOT_FOUND,
    NotRegistered: ExitCode.NOT_FOUND,
    GenerationMoved: ExitCode.CONFLICT,
    PolicyFileInvalid: ExitCode.USAGE,
    PolicyContradicted: ExitCode.CONFLICT,
    AlreadyRegistered: ExitCode.CONFLICT,
    VersionInUse: ExitCode.CONFLICT,
    DeclaredOtherwise: ExitCode.CONFLICT,
    ArchiveBusy: ExitCode.CONFLICT,
    MigrationBlocked: ExitCode.CONFLICT,
    DataWouldBeLost: ExitCode.NOT_ALLOWED,
    Unauthenticated: ExitCode.NOT_ALLOWED,
    ScopeMissing: ExitCode.NOT_ALLOWED,
    PolicyRefused: ExitCode.NOT_ALLOWED,
    LoginNotAllowed: ExitCode.NOT_ALLOWED,
    ArtifactForbidden: ExitCode.NOT_ALLOWED,
    RegistryUnavailable: ExitCode.UNREACHABLE,
    ArchiveUnavailable: ExitCode.UNREACHABLE,
    LakeUnavailable: ExitCode.UNREACHABLE,
    SourceAway: ExitCode.UNREACHABLE,
    ArtifactUnreachable: ExitCode.UNREACHABLE,
    ServerNotManageable: ExitCode.UNREACHABLE,
    BackendUnavailable: ExitCode.UNREACHABLE,
    FeaturesUnavailable: ExitCode.UNREACHABLE,
    SchemaInvalid: ExitCode.USAGE,
    DatabaseNeeded: ExitCode.USAGE,
    SchemaNotTold: ExitCode.USAGE,
    MigrationNeeded: ExitCode.PROBLEM,
    ServingError: ExitCode.PROBLEM,
    RequestError: ExitCode.USAGE,
}
"""The nearest base of an error decides."""


class CommandRefused(Exception):
    """The command cannot go on, for a reason that is the command line's own and has no error code."""

    def __init__(self, exit_code: ExitCode, detail: str, next_step: str) -> None:
        super().__init__(detail)
        self.exit_code = exit_code
        self.detail = detail
        self.next_step = next_step


def exit_code_of(problem: UnderstudyError | CommandRefused) -> ExitCode:
    """Return the exit code of a failure."""
    return problem.exit_code if isinstance(problem, CommandRefused) else exit_code_for(type(problem))


def exit_code_for(error: type[UnderstudyError]) -> ExitCode:
    """Return the exit code of a kind of error."""
    return next((EXIT_CODES[base] for base in error.__mro__ if base in EXIT_CODES), ExitCode.PROBLEM)


def problem_document(problem: UnderstudyError | CommandRefused) -> dict[str, Any]:
    """Return a failure as JSON."""
    code, title = (problem.code, problem.title) if isinstance(problem, UnderstudyError) else (None, None)
    places = [place._asdict() for place in problem.problems] if isinstance(problem, PolicyFileInvalid) else None
    return {
        "schema": SCHEMA,
        "error": {
            "code": code,
            "title": title,
            "detail": problem.detail,
            "next": _next_step(problem),
            "exit_code": int(exit_code_of(problem)),
            **({} if places is None else {"problems": places}),
        },
    }


def problem_text(problem: UnderstudyError | CommandRefused) -> Text:
    """Return a failure for people: code and title, the cause, the next step."""
    text = Text()
    if isinstance(problem, CommandRefused):
        text.append("✖ ", "bold red").append(problem.detail, "bold")
    else:
        text.append(f"✖ {problem.code} ", "bold red").append(problem.title, "bold")
        if problem.detail != problem.title:
            text.append(f"\n  {problem.detail}")
        if isinstance(problem, RequestError):
            for violation in problem.violations:
                text.append(f"\n  {violation.pointer}: {violation.detail}")
        if isinstance(problem, PolicyFileInvalid):
            for place in problem.problems[:MAX_SHOWN]:
                text.append(f"\n  {place}")
            if len(problem.problems) > MAX_SHOWN:
                text.append(f"\n  and {len(problem.problems) - MAX_SHOWN} more, which --json has")
    return text.append("\n  → ", "cyan").append(_next_step(problem))


def _next_step(problem: UnderstudyError | CommandRefused) -> str:
    command = next_command(problem.detail) if isinstance(problem, PolicyRefused) else None
    return command or problem.next_step


def report(problem: UnderstudyError | CommandRefused, *, as_json: bool) -> int:
    """Say on standard error what went wrong and return the exit code."""
    if as_json:
        sys.stderr.write(orjson.dumps(problem_document(problem)).decode() + "\n")
    else:
        advice_console().print(problem_text(problem), soft_wrap=True)
    return int(exit_code_of(problem))
