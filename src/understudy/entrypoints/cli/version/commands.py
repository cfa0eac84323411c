"""``understudy version``: the trained artifacts of a model."""

import sys
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from understudy.core.routing.status_changes import status_change_of
from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences, input_differences
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.input_warnings import input_warnings
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, VersionLabel
from understudy.entrypoints.cli.shared.rendering import Column, a_table, ago, facts, nothing_as, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.version.check import check
from understudy.entrypoints.cli.version.diff import diff
from understudy.entrypoints.cli.version.tensors_text import tensors_text
from understudy.lifecycle.registry import register_version
from understudy.lifecycle.version_description import problems_of
from understudy.ports.registry import RETIRED, NewVersion, Registry, VersionChange, VersionRecord

app = typer.Typer(
    no_args_is_help=True, help="Register, compare, check, list, show and retire model versions.", add_completion=False
)
app.command()(diff)
app.command()(check)
WhyNoted = Annotated[str | None, typer.Option("--reason", help="Why; kept with the version, where show has it.")]

_EXAMPLE = '{"artifact_path": "s3://…", "framework": "sklearn", "input_schema": {"features": […]}}'


@app.command()
def register(
    *,
    model: ModelName,
    version: VersionLabel,
    source: Annotated[str, typer.Option("--from", metavar="FILE", help="A JSON file; - reads stdin.")],
    endpoint: Annotated[
        list[str] | None, typer.Option("--endpoint", metavar="HOST:PORT", help="A model server; repeat for replicas.")
    ] = None,
    protocol: Annotated[str | None, typer.Option(help="oip, tfserving or torchserve.")] = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Register a version as staging; nothing is sent to it until a policy names it.

    FILE has artifact_path, framework and input_schema, and may have artifact_digest, output_schema, protocol,
    endpoints, metrics, backend, deterministic, cache_ttl_seconds and timeout_ms.
    """
    described = read_description(source)
    if endpoint:
        described["endpoints"] = endpoint
    if protocol:
        described["protocol"] = protocol
    described["endpoints"] = tuple(described.get("endpoints", ()))
    new = NewVersion(model_name=model, version=version, **described)

    async def register(registry: Registry) -> tuple[VersionRecord, VersionRecord | None]:
        made = await register_version(registry, new, actor_of_command(None), dry_run=dry_run)
        return made, await _champion_of(registry, model)

    made, champion = with_registry(register)
    found = NO_DIFFERENCES if champion is None else input_differences(champion.input_schema, made.input_schema)
    if dry_run:
        head = Text(f"Would register {model} {version}; nothing was written.", "bold")
        then = "Run again without --dry-run to register it as staging."
    else:
        head = Text("✔ ", "green").append(f"registered {model} {version} as staging", "bold")
        then = _next_step(model, version, None if champion is None else found)
    document = {
        "version": {**version_document(made), "id": None if dry_run else made.id},
        "input_differences": found._asdict(),
        "dry_run": dry_run,
    }
    warnings = [] if champion is None else input_warnings(champion.version, version, found)
    show(document, head, facts(_facts_of(made)), *tensors_text(made), *warnings, then, as_json=as_json)


async def _champion_of(registry: Registry, model: str) -> VersionRecord | None:
    """Return the champion of a model; ``None`` while it has no policy, or no version at all."""
    if not await registry.list_versions(model):
        return None
    policy = (await registry.show_model(model)).policy
    return None if policy is None else await registry.show_version(model, policy.champion)


def _next_step(model: str, version: str, found: InputDifferences | None) -> str:
    """Return what to do with a new version; ``found`` is ``None`` where there is no champion to differ from."""
    named = f"{quote(model)} {quote(version)}"
    if found is not None and found.breaking:
        return "→ a rollout of it is refused; docs/how-to/connect-a-model-server.md has what to do about a new input"
    if found is not None:
        return f"→ understudy rollout start {named} --reason '…' gives it traffic step by step, and judges it"
    first = f"{quote(model)} --champion {quote(version)}"
    return f"→ understudy model set {first} --reason '…' makes it the first champion: it answers every call"


@app.command("add-endpoint")
def add_endpoint(
    *,
    model: ModelName,
    version: VersionLabel,
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A model server of this version.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Give a version one more model server; one that it has already changes nothing."""

    async def add(registry: Registry) -> VersionRecord:
        return await registry.add_endpoint(model, version, target, actor_of_command(None), dry_run=dry_run)

    made = with_registry(add)
    head = Text("✔ ", "green").append(f"{model} {version} is served by {', '.join(made.endpoints)}", "bold")
    if dry_run:
        head = Text(f"{model} {version} would be served by {', '.join(made.endpoints)}; nothing was written.", "bold")
    document = {"version": version_document(made), "dry_run": dry_run}
    asks = f"→ understudy version check {quote(model)} {quote(version)} asks its model servers"
    show(document, head, asks, as_json=as_json)


@app.command("list")
def list_versions(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a model, or of all."""
    found = with_registry(lambda registry: registry.list_versions(model))
    rows = [
        (
            record.model_name,
            record.version,
            record.status,
            record.protocol,
            str(len(record.endpoints)),
            record.framework,
            ago(record.created_at),
            str(record.id),
        )
        for record in found
    ]
    columns = [
        Column("model"),
        Column("version"),
        Column("status"),
        Column("protocol", drop=1),
        Column("servers", drop=2, right=True),
        Column("framework", drop=4),
        Column("registered", drop=3),
        Column("id", drop=1, right=True),
    ]
    text = a_table(columns, rows) if rows else f"No version{f' of {model}' if model else ''} is registered."
    show({"versions": [version_document(record) for record in found]}, text, as_json=as_json)


@app.command("show")
def show_version(*, model: ModelName, version: VersionLabel, as_json: AsJson = False) -> None:
    """Show one version."""
    record = with_registry(lambda registry: registry.show_version(model, version))
    head = Text().append(f"{record.model_name} {record.version}", "bold").append(f"  {record.status}", "cyan")
    parts = [facts([*_facts_of(record), *status_facts(record)]), *tensors_text(record)]
    show({"version": version_document(record)}, head, *parts, as_json=as_json)


@app.command()
def retire(
    *,
    model: ModelName,
    version: VersionLabel,
    reason: WhyNoted = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Retire a version without a role, and without a part in an open rollout: it gets none, and no call may name it.

    Its row and its logged calls stay; one that is retired already changes nothing.
    """
    changed = _set_retired(model, version, reason, is_retired=True, dry_run=dry_run)
    named = f"{quote(model)} {quote(version)}"
    if changed.before == changed.after:
        head = Text(f"nothing changed: {model} {version} is retired already", "bold")
    elif dry_run:
        head = Text(f"Would retire {model} {version}; nothing was written.", "bold")
    else:
        said = f"{model} {version} is retired: it gets no role, and no call may name it"
        head = Text("✔ ", "green").append(said, "bold")
    then = f"→ to undo it: understudy version restore {named}; then it is staging, and may get a role again"
    if dry_run and changed.before != changed.after:
        then = "Run again without --dry-run to retire it."
    show(_change_document(changed, dry_run=dry_run), head, then, as_json=as_json)


@app.command()
def restore(
    *,
    model: ModelName,
    version: VersionLabel,
    reason: WhyNoted = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make a retired version staging again; nothing is sent to it until a policy names it."""
    changed = _set_retired(model, version, reason, is_retired=False, dry_run=dry_run)
    named = f"{quote(model)} {quote(version)}"
    then = f"→ understudy rollout start {named} --reason '…' gives it traffic step by step"
    if changed.before == changed.after:
        head = Text(f"nothing changed: {model} {version} is {changed.after.status}, not retired", "bold")
        then = f"→ understudy version show {named}"
    elif dry_run:
        head = Text(f"Would make {model} {version} staging again; nothing was written.", "bold")
        then = "Run again without --dry-run to restore it."
    else:
        head = Text("✔ ", "green").append(f"{model} {version} is staging again", "bold")
    show(_change_document(changed, dry_run=dry_run), head, then, as_json=as_json)


def _set_retired(model: str, version: str, reason: str | None, *, is_retired: bool, dry_run: bool) -> VersionChange:
    actor = actor_of_command((reason or "").strip() or None)
    return with_registry(
        lambda registry: registry.set_retired(model, version, actor, is_retired=is_retired, dry_run=dry_run)
    )


def _change_document(changed: VersionChange, *, dry_run: bool) -> dict[str, Any]:
    return {
        "version": version_document(changed.after),
        "changed": changed.before != changed.after and not dry_run,
        "dry_run": dry_run,
    }


def version_document(record: VersionRecord) -> dict[str, Any]:
    """Return a version as JSON."""
    return record._asdict()


def read_description(source: str) -> dict[str, Any]:
    """Return the fields of a version that a JSON file gives.

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
    problems = problems_of(described)
    if problems:
        raise CommandRefused(
            ExitCode.USAGE,
            "\n  ".join([f"{source} does not describe a version:", *problems]),
            f"For example: {_EXAMPLE}",
        )
    return dict(described)


def _facts_of(record: VersionRecord) -> list[tuple[str, str]]:
    features = record.input_schema.get("features", [])
    names = ", ".join(str(feature.get("name")) for feature in features if isinstance(feature, dict))
    metrics = ", ".join(
        f"{name} {value}" for name, value in (record.metrics or {}).items() if not isinstance(value, dict)
    )
    caching = f"{record.cache_ttl_seconds} s" if record.deterministic and record.cache_ttl_seconds else "off"
    return [
        ("artifact", record.artifact_path),
        ("digest", nothing_as(record.artifact_digest)),
        ("framework", record.framework),
        ("protocol", record.protocol),
        ("servers", ", ".join(record.endpoints) or "none yet"),
        ("inputs", f"{len(features)}: {names}"),
        ("metrics", nothing_as(metrics)),
        ("cached for", caching),
        ("time-out", f"{record.timeout_ms} ms"),
    ]


def status_facts(record: VersionRecord) -> list[tuple[str, str]]:
    """Return who retired a version or brought it back; nothing where its status is another one since."""
    noted = status_change_of(record.metrics)
    if noted is None or (noted.status == RETIRED) != (record.status == RETIRED):
        return []
    try:
        when = ago(datetime.fromisoformat(noted.at))
    except (ValueError, TypeError):  # SQL wrote it
        return []
    word = "retired" if noted.status == RETIRED else "restored"
    return [(word, f"{when} by {noted.by}" + (f": {noted.reason}" if noted.reason else ""))]
