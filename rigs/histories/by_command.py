"""Operations by the command line, in a thread of the runner: a process for each would cost a second of processor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from command import CommandLine

from rigs.histories.answers import UNKNOWN, Answer, is_refusal, refused, understood, unexpected
from rigs.histories.record import COMMANDS, Kind, Operation

UNREACHABLE = 69
_OPTIONS: Mapping[str, str] = {
    "champion": "--champion",
    "challenger": "--challenger",
    "challenger_weight": "--weight",
    "shadow": "--shadow",
    "shadow_percent": "--shadow-percent",
    "salt": "--salt",
}


class ByCommand:
    """An operator with a shell.

    Args:
        database_url: The operator's.
        folder: For files of plans.
    """

    def __init__(self, database_url: str, folder: Path) -> None:
        self._understudy = CommandLine(database_url)
        self._folder = folder

    async def carry_out(self, operation: Operation) -> Answer:
        """Run the command line and say how it ended."""
        arguments = arguments_of(operation)
        if operation.kind is Kind.START:
            plan = self._folder / f"{operation.tag}.json"
            plan.write_bytes(orjson.dumps(operation.asked["plan"]))
            arguments = [*arguments, "--plan", f"@{plan}"]
        done = await self._understudy.beside(*arguments, "--json")
        document = _last_document(done.out)
        if document is not None:
            return understood(operation.kind, document)
        problem = (_last_document(done.err) or {}).get("error", {})
        if is_refusal(problem.get("code")):
            return refused(problem["code"], problem.get("detail", ""))
        return UNKNOWN if done.code == UNREACHABLE else unexpected(f"exit {done.code}: {done.out}{done.err}")


def arguments_of(operation: Operation) -> Sequence[str]:
    """Return the command line of an operation, without the plan of a rollout, which is in a file."""
    kind, version = operation.kind, operation.asked.get("version", "")
    if kind in _READS:
        return _READS[kind]
    why = ("--reason", operation.tag)
    if kind in (Kind.RETIRE, Kind.RESTORE):
        return "version", kind.value, "visits", version, *why
    if kind is Kind.SET:
        return "model", "set", "visits", *_options_of(operation.asked), *why, "--yes"
    verb = ("rollback", "visits") if kind is Kind.ROLL_BACK else ("rollout", "start", "visits", version)
    return *(("rollout", kind.value, "visits") if kind in COMMANDS else verb), *why, "--yes"


_READS: Mapping[Kind, Sequence[str]] = {
    Kind.READ_POLICY: ("model", "show", "visits"),
    Kind.READ_AUDIT: ("audit", "list", "visits", "--limit", "20"),
    Kind.READ_ROLLOUT: ("rollout", "list", "visits", "--limit", "1"),
}


def _options_of(asked: Mapping[str, Any]) -> list[str]:
    options: list[str] = []
    for name, value in asked["changes"].items():
        if name == "fallback":
            options.append("--fallback" if value else "--no-fallback")
        else:
            options += [_OPTIONS[name], "none" if value is None else str(value)]
    if asked.get("expected") is not None:
        options += ["--expect-generation", str(asked["expected"])]
    return options


def _last_document(text: str) -> dict[str, Any] | None:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            document: dict[str, Any] = orjson.loads(line)
            return document
    return None
