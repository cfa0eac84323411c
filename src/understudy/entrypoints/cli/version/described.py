"""Where ``version register`` has a version's description from: a JSON file, or what a model says of itself."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from rich.console import RenderableType
from rich.text import Text

from understudy.adapters.files.refusal import FileRefused
from understudy.core.schema.described import DescribedModel
from understudy.core.schema.proposed import Choices, Proposal, propose
from understudy.entrypoints.cli.shared.environment import settings_of_place
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.errors import BackendUnavailable, BadAnswer, SchemaNotTold
from understudy.ports.registry.registry import NewVersion
from understudy.ports.upstream.model_description import ModelAt
from understudy.registry.described_version import ServerAnswer, ask_servers, schemas_of
from understudy.registry.version_description import problems_of
from understudy.settings import Settings

_EXAMPLE = '{"artifact_path": "s3://…", "framework": "sklearn", "input_schema": {"features": […]}}'
_NOT_TOLD = (
    "Start the server, or correct --endpoint, --protocol, or --backend model_name=… and version=…; --from-onnx, "
    "--from-mlflow and --from need no server."
)
_SOURCES = "--from FILE, --from-server, --from-onnx FILE or --from-mlflow FOLDER"


_NEEDED = {
    "artifact_path": "it does not say where its file lies: --artifact URI",
    "framework": "it does not say what made it: --framework NAME",
}
"""Fields that not every source says, and the options that do."""


class Source(NamedTuple):
    """Where the description comes from: exactly one of them."""

    file: str | None
    from_server: bool
    onnx: Path | None
    mlflow: Path | None
    like: str | None = None
    """A version of the model whose schemas are taken, where a model says its own tensors."""


class Description(NamedTuple):
    """The fields of a version."""

    fields: dict[str, Any]
    notes: tuple[str, ...] = ()
    """What the source leaves open, in words."""
    is_proposed: bool = False
    """Whether its schemas are proposed, and no person wrote them."""
    settings: Settings | None = None
    """The command's settings, where they were read for it."""


def described_version(source: Source, options: Mapping[str, Any], choices: Choices, model: str) -> Description:
    """Return the fields of a version; ``options`` stand in the place of what the source says.

    Raises:
        CommandRefused: There is no source or several, a file cannot be read, or a field is missing or of a wrong type.
        SchemaNotTold: The model does not tell all of its schemas.
        ModelContradicts: It is unlike the version whose schemas are to be taken.
        BackendUnavailable, BadAnswer: Its server does not tell anything.
    """
    there = [source.file is not None, source.from_server, source.onnx is not None, source.mlflow is not None]
    if sum(there) != 1:
        what = "nothing describes the version" if not any(there) else "several things describe the version"
        if source.like is not None and not any(there):
            what = "--like takes the schemas of a version for a model that says its own tensors, and none is named"
        raise CommandRefused(ExitCode.USAGE, what, f"Give one of {_SOURCES}.")
    given = {name: value for name, value in options.items() if value}
    if source.file is not None:
        if choices != Choices() or source.like is not None:
            what = "a file says all of a version: options such as --output and --like are for the other sources"
            raise CommandRefused(ExitCode.USAGE, what, f"Write it into {source.file}, or leave --from out.")
        read = _read_description(source.file, given.pop("artifact_path", None))
        if "backend" in given:
            given["backend"] = {**read.get("backend", {}), **given["backend"]}
        return Description(read | given)
    settings = settings_of_place() if source.from_server or source.like else None
    said = _told_by_server(given, model, settings) if settings and source.from_server else _told_by(source)
    path = None if source.from_server else f"file:{source.onnx or source.mlflow}"
    fields = {"framework": said.framework, "artifact_path": path, **given}
    missing = [words for name, words in _NEEDED.items() if not fields[name]]
    try:
        proposal = _like(source.like, said, choices, model, settings) if source.like else propose(said, choices)
    except SchemaNotTold as problem:
        raise SchemaNotTold("; ".join([problem.detail, *missing])) from None
    if missing:
        raise SchemaNotTold(f"{said.source}: {'; '.join(missing)}")
    fields |= {"input_schema": proposal.input_schema, "output_schema": proposal.output_schema}
    _require_valid(fields)
    return Description(fields, proposal.notes, is_proposed=True, settings=settings)


def _like(label: str, said: DescribedModel, choices: Choices, model: str, settings: Settings | None) -> Proposal:
    if choices != Choices():
        what = "--like takes the schemas of a version as they are: it goes with no option such as --output"
        raise CommandRefused(ExitCode.USAGE, what, "Leave one of the two out.")
    return schemas_of(with_registry(lambda registry: registry.show_version(model, label), settings=settings), said)


def _told_by_server(given: Mapping[str, Any], model: str, settings: Settings) -> DescribedModel:
    endpoints = given.get("endpoints")
    if not endpoints:
        raise CommandRefused(ExitCode.USAGE, "--from-server asks a model server", "Name one: --endpoint HOST:PORT.")
    from understudy.bootstrap.upstream.backends import describer_of  # noqa: PLC0415 - gRPC, which few commands need

    at = ModelAt(model, given.get("protocol", "oip"), endpoints[0], given.get("backend", {}))
    try:
        return asyncio.run(describer_of(settings)(at))
    except (BackendUnavailable, BadAnswer) as problem:
        problem.next_step = _NOT_TOLD
        raise


def _told_by(source: Source) -> DescribedModel:
    # Formats that few commands read.
    from understudy.adapters.files.mlflow_model import read_mlflow  # noqa: PLC0415
    from understudy.adapters.files.onnx_file import read_onnx  # noqa: PLC0415

    try:
        return read_onnx(source.onnx) if source.onnx is not None else read_mlflow(source.mlflow or Path())
    except FileRefused as problem:
        raise CommandRefused(ExitCode.USAGE, str(problem), problem.next_step) from None


def _require_valid(fields: Mapping[str, Any]) -> None:
    """Refuse options that no description may have, such as an artifact with a login in it."""
    problems = problems_of(dict(fields) | {"endpoints": list(fields.get("endpoints", ()))})
    if problems:
        raise CommandRefused(ExitCode.USAGE, "; ".join(problems), "Correct the options.")


def asked_servers(new: NewVersion, settings: Settings) -> list[ServerAnswer]:
    """Return what a version's model servers say of its schemas; none is asked where gRPC is not installed."""
    if not new.endpoints or new.group_name is not None or find_spec("grpc") is None:
        return []
    from understudy.bootstrap.upstream.backends import describer_of  # noqa: PLC0415 - gRPC, 0.2 s, for versions with a server

    return asyncio.run(ask_servers(new, describer_of(settings)))


def notes_text(notes: Sequence[str]) -> list[RenderableType]:
    """Return what the source leaves open, a line for each."""
    return ["", *(Text("? ", "cyan").append(note) for note in notes)] if notes else []


def answers_text(answers: Sequence[ServerAnswer]) -> list[Text]:
    """Return a line for each server that could not be compared; those that agree are told together."""
    agreeing = [answer.endpoint for answer in answers if answer.is_comparable and not answer.differences]
    silent = [f"{answer.problem}; the schemas are not compared with it" for answer in answers if answer.problem]
    lines = [Text("! ", "yellow").append(line) for line in silent]
    if agreeing:
        lines.append(Text("✔ ", "green").append(f"{', '.join(agreeing)}: the model server has these tensors"))
    return lines


def _read_description(source: str, artifact: str | None) -> dict[str, Any]:
    """Return the fields of a version that a JSON file gives; ``artifact`` stands in the place of ``artifact_path``.

    Raises:
        CommandRefused: It cannot be read, or a field is missing, unknown or of the wrong type.
    """
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        described = orjson.loads(content)
    except OSError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{source} cannot be read: {problem.strerror}", "Name a file.") from None
    except orjson.JSONDecodeError as problem:
        raise CommandRefused(ExitCode.USAGE, f"{source} is not JSON: {problem}", f"For example: {_EXAMPLE}") from None
    if artifact is not None and isinstance(described, dict):
        described["artifact_path"] = artifact
    problems = problems_of(described)
    if problems:
        raise CommandRefused(
            ExitCode.USAGE,
            "\n  ".join([f"{source} does not describe a version:", *problems]),
            f"For example: {_EXAMPLE}",
        )
    return dict(described)
