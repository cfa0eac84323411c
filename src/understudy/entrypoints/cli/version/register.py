"""``understudy version register``: a version as its engineer describes it, checked before it is stored."""

import sys
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences, input_differences
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.environment import read_settings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.policy_changes.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.rendering import facts, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.version.pin import pinned_version
from understudy.entrypoints.cli.version.record_text import version_facts
from understudy.entrypoints.cli.version.tensors_text import tensors_text
from understudy.entrypoints.documents.versions import registered_document
from understudy.lifecycle.registry import champion_of, register_version
from understudy.lifecycle.version_description import MAX_NAME_CHARACTERS, is_name, problems_of
from understudy.ports.registry.registry import NewVersion, Registry, VersionRecord

_PROTOCOLS = "oip, tfserving or torchserve; over HTTP oip-http, tfserving-http, mlflow or json."
_EXAMPLE = '{"artifact_path": "s3://…", "framework": "sklearn", "input_schema": {"features": […]}}'


def _name(text: str | None) -> str | None:
    if text is not None and not is_name(text):
        raise typer.BadParameter(f"expected 1 to {MAX_NAME_CHARACTERS} characters, got {len(text)}")
    return text


BaseModelName = Annotated[
    str | None,
    typer.Option("--base-model", metavar="NAME", callback=_name, help="What it was trained from: llama-70b-v1."),
]
FamilyName = Annotated[
    str | None,
    typer.Option("--family", metavar="NAME", callback=_name, help="Of the base model; else its name up to a hyphen."),
]


def register(
    *,
    model: ModelName,
    version: VersionLabel,
    source: Annotated[str, typer.Option("--from", metavar="FILE", help="A JSON file; - reads stdin.")],
    endpoint: Annotated[
        list[str] | None, typer.Option("--endpoint", metavar="HOST:PORT", help="A model server; repeat for replicas.")
    ] = None,
    artifact: Annotated[
        str | None, typer.Option("--artifact", metavar="URI", help="Its file or folder; in the place of artifact_path.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Have agents load it onto this group of servers.")
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="With --group: read an artifact in a store now, and pin what it is.")
    ] = True,
    protocol: Annotated[str | None, typer.Option(help=_PROTOCOLS)] = None,
    base_model: BaseModelName = None,
    family: FamilyName = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register a version as staging; nothing is sent to it until a policy names it.

    FILE has artifact_path, framework and input_schema, and may have artifact_digest, base_model, family,
    output_schema, protocol, endpoints, metrics, backend, deterministic, cache_ttl_seconds and timeout_ms. With
    --group agents load it, for two hours and for as long as it has a role, and an artifact in a store is read and its
    digest registered.
    """
    options = {"endpoints": endpoint, "protocol": protocol, "base_model": base_model, "family": family}
    described = _read_description(source, artifact) | {name: value for name, value in options.items() if value}
    described["endpoints"] = tuple(described.get("endpoints", ()))
    new = NewVersion(model_name=model, version=version, group_name=group, **described)

    async def register(registry: Registry) -> tuple[VersionRecord, VersionRecord | None]:
        last = await pinned_version(registry, new, read_settings()) if pin else new
        made = await register_version(registry, last, actor_of_command(None), dry_run=dry_run)
        return made, await champion_of(registry, model)

    made, champion = with_registry(register)
    found = NO_DIFFERENCES if champion is None else input_differences(champion.input_schema, made.input_schema)
    if dry_run:
        head = Text(f"Would register {model} {version}; nothing was written.", "bold")
        then = "Run again without --dry-run to register it as staging."
    else:
        head = Text("✔ ", "green").append(f"registered {model} {version} as staging", "bold")
        then = _loading_step(new) + _next_step(model, version, None if champion is None else found)
    document = registered_document(made, found, dry_run=dry_run)
    warnings = [] if champion is None else input_warnings(champion.version, version, found)
    show(document, head, facts(version_facts(made)), *tensors_text(made), *warnings, then, as_json=as_json)


def _loading_step(new: NewVersion) -> str:
    """Return how a person waits until agents have loaded a version; empty where none do."""
    if new.group_name is None:
        return ""
    named = f"{quote(new.model_name)} {quote(new.version)}"
    return f"→ understudy version load {named} --wait waits until it is loaded\n"


def _next_step(model: str, version: str, found: InputDifferences | None) -> str:
    """Return what to do with a new version; ``found`` is ``None`` where there is no champion to differ from."""
    named = f"{quote(model)} {quote(version)}"
    if found is not None and found.breaking:
        return "→ a rollout of it is refused; docs/how-to/connect-a-model-server.md has what to do about a new input"
    if found is not None:
        return f"→ understudy rollout start {named} --reason '…' gives it traffic step by step, and judges it"
    first = f"{quote(model)} --champion {quote(version)}"
    return f"→ understudy model set {first} --reason '…' makes it the first champion: it answers every call"


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
