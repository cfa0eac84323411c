"""``understudy version diff``: what differs between two versions of a model."""

import json
from collections.abc import Mapping
from shlex import quote
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType
from rich.text import Text

from understudy.core.schema.input_diff import Names
from understudy.core.schema.version_diff import Callers, Comparison, Difference, Part, compare_versions
from understudy.core.upstream.same_call import SameCall, same_call
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, ModelName
from understudy.entrypoints.cli.shared.policy_changes.same_call_warnings import same_call_warnings
from understudy.entrypoints.cli.shared.rendering import Column, a_table, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.errors import NotRegistered
from understudy.ports.registry.registry import Registry, VersionRecord

MAX_SHOWN = 200
"""Characters of a value that people are shown; a default may be a list of a million numbers."""
_ABSENT = "-"
_SAID_IN_WORDS = ("dtype", "shape", "required", "features")

FirstVersion = Annotated[
    str, typer.Argument(metavar="OLD", help="Whose callers it is about; without NEW: who is set against the champion.")
]
SecondVersion = Annotated[str | None, typer.Argument(metavar="[NEW]", help="Who would answer them instead.")]


class Compared(NamedTuple):
    """Two versions of a model and what differs."""

    model_name: str
    old: str
    new: str
    found: Comparison
    same: SameCall | None = None

    @property
    def exit_code(self) -> ExitCode:
        """Done when every call that fits the old version can be answered by the new one."""
        return ExitCode.DONE if self.found.callers is Callers.ALL else ExitCode.PROBLEM


def diff(*, model: ModelName, old: FirstVersion, new: SecondVersion = None, as_json: AsJson = False) -> None:
    """Say what differs between two versions, or a version and the champion; leaves with 1 when calls would fail."""
    if new == old:
        what = f"version {old} of {model} is compared with itself"
        raise CommandRefused(ExitCode.USAGE, what, f"Name two versions: understudy version diff {quote(model)} OLD NEW")

    async def read(registry: Registry) -> tuple[VersionRecord, VersionRecord]:
        if new is not None:
            return await registry.show_version(model, old), await registry.show_version(model, new)
        champion = await _champion_of(registry, model, old)
        return await registry.show_version(model, champion), await registry.show_version(model, old)

    compared = compared_of(*with_registry(read))
    show(difference_document(compared), *difference_texts(compared), as_json=as_json)
    raise typer.Exit(compared.exit_code)


async def _champion_of(registry: Registry, model: str, version: str) -> str:
    """Return the champion's label, to compare another version with.

    Raises:
        NotRegistered: There is no such model, or it has no champion yet.
        CommandRefused: It is this very version.
    """
    policy = (await registry.show_model(model)).policy
    both = f"understudy version diff {quote(model)} OLD NEW"
    if policy is None:
        what = f"{model} has no serving policy, so no champion to compare with"
        raise NotRegistered(what, hint=f"Name two versions: {both}")
    if policy.champion == version:
        what = f"version {version} is the champion of {model}, so there is nothing to compare it with"
        raise CommandRefused(ExitCode.USAGE, what, f"Name two versions: {both}")
    return policy.champion


def compared_of(old: VersionRecord, new: VersionRecord) -> Compared:
    """Compare two versions.

    Raises:
        SchemaInvalid: A schema cannot be compiled.
    """
    names = Names(f"version {old.version}", f"version {new.version}")
    found = compare_versions(old._asdict(), new._asdict(), names)
    return Compared(old.model_name, old.version, new.version, found, same_call(new, old))


def difference_document(compared: Compared) -> dict[str, Any]:
    """Return what differs as JSON."""
    return {
        "model": compared.model_name,
        "old": compared.old,
        "new": compared.new,
        "callers": compared.found.callers,
        "input_differences": compared.found.inputs._asdict(),
        "differences": [difference._asdict() for difference in compared.found.differences],
        "same_call": None if compared.same is None else compared.same._asdict(),
    }


def difference_texts(compared: Compared, width: int | None = None) -> list[RenderableType]:
    """Return the verdict, why, a table of all that differs, and what to do next."""
    because = [Text(f"  {line}") for line in compared.found.inputs.lines()]
    same = same_call_warnings([] if compared.same is None else [compared.same])
    return [_verdict(compared), *because, *same, _table_of(compared, width), _next_step(compared)]


def _verdict(compared: Compared) -> Text:
    old, new = f"{compared.model_name} {compared.old}", compared.new
    mark, style, words = {
        Callers.ALL: ("✔", "green", f"every call that fits {old} can be answered by {new}"),
        Callers.SOME: ("!", "yellow", f"a call that fits {old} may fail at {new} (422): it depends on its values"),
        Callers.NONE: ("✖", "red", f"every call that fits {old} fails at {new} (422)"),
    }[compared.found.callers]
    return Text(f"{mark} ", style).append(words, "bold")


def _table_of(compared: Compared, width: int | None) -> RenderableType:
    differences = compared.found.differences
    if not differences:
        return "Nothing differs: inputs, outputs, model servers and settings are the same."
    columns = [Column("what"), Column(compared.old), Column(compared.new)]
    return a_table(columns, map(_cells_of, differences), width)


def _cells_of(difference: Difference) -> tuple[str, str, str]:
    part = "" if difference.part is Part.SETTING else difference.part.value
    what = " ".join(filter(None, (part, difference.name, difference.field)))
    return what, value_words(difference, difference.old), value_words(difference, difference.new)


def value_words(difference: Difference, value: Any) -> str:
    """Return one side of a difference; a dash where it is not there, never more than :data:`MAX_SHOWN` characters."""
    words = _words(difference, value)
    more = len(words) - MAX_SHOWN
    return f"{words[:MAX_SHOWN]} and {more:,} characters more" if more > 0 else words


def _words(difference: Difference, value: Any) -> str:
    if value is None:
        return _ABSENT
    if isinstance(value, Mapping) and not difference.field:
        return _whole_words(value)
    # The default "1" is not the default 1.
    return value if isinstance(value, str) and difference.field != "default" else _json(value)


def _whole_words(described: Mapping[str, Any]) -> str:
    """Return an input or tensor that only one version has: ``float32 [2], required``, ``float32 [1], of age``."""
    shape = described["shape"]
    words = [f"{described['dtype']} {_json(shape)}" if shape else described["dtype"]]
    words += ["required"] if described.get("required") else []
    words += [f"of {', '.join(described['features'])}"] if described.get("features") else []
    said = {name: value for name, value in described.items() if name not in _SAID_IN_WORDS}
    return ", ".join([*words, *(f"{name} {_json(value)}" for name, value in said.items())])


def _json(value: Any) -> str:
    # With spaces, at which a narrow terminal folds it.
    return json.dumps(value, ensure_ascii=False)


def _next_step(compared: Compared) -> str:
    named = f"{quote(compared.model_name)} {quote(compared.new)}"
    if compared.found.callers is Callers.ALL:
        return f"→ understudy version check {named} asks whether its model servers answer"
    return "→ docs/how-to/connect-a-model-server.md has what to do about inputs that differ"
