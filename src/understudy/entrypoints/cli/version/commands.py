"""``understudy version``: the trained artifacts of a model."""

import json
from collections.abc import Sequence
from shlex import quote
from typing import Annotated

import typer
from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.entrypoints.cli.shared.actor import actor_of_command
from understudy.entrypoints.cli.shared.options import AsJson, DryRun, ModelName, Utc, VersionLabel
from understudy.entrypoints.cli.shared.rendering import Column, a_table, facts, show
from understudy.entrypoints.cli.shared.session import with_control_plane, with_registry
from understudy.entrypoints.cli.shared.times import when_words
from understudy.entrypoints.cli.version.check import check
from understudy.entrypoints.cli.version.diff import diff
from understudy.entrypoints.cli.version.loading import load, servers_text, too_few_texts, unload
from understudy.entrypoints.cli.version.record_text import status_facts, version_facts
from understudy.entrypoints.cli.version.register import register
from understudy.entrypoints.cli.version.tensors_text import tensors_text
from understudy.entrypoints.cli.version.validate import validate
from understudy.entrypoints.documents.loading import loaded_words, loading_document
from understudy.entrypoints.documents.versions import change_document, version_document
from understudy.ports.loading.loading_registry import ServerRecord, VersionLoadingRecord
from understudy.ports.registry.registry import Registry, VersionChange, VersionRecord
from understudy.registry.version_description import description_of

app = typer.Typer(
    no_args_is_help=True,
    help="Register, load, compare, check, list, show and retire model versions.",
    add_completion=False,
)
app.command()(register)
app.command()(diff)
app.command()(check)
app.command()(validate)
app.command()(load)
app.command()(unload)
WhyNoted = Annotated[str | None, typer.Option("--reason", help="Why; kept with the version, where show has it.")]


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


@app.command("remove-endpoint")
def remove_endpoint(
    *,
    model: ModelName,
    version: VersionLabel,
    target: Annotated[str, typer.Argument(metavar="HOST:PORT", help="A model server that the version has.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Take a model server away from a version; the last one of a version with a role is refused."""

    async def remove(registry: Registry) -> VersionRecord:
        return await registry.remove_endpoint(model, version, target, actor_of_command(None), dry_run=dry_run)

    made = with_registry(remove)
    left = f"is served by {', '.join(made.endpoints)}" if made.endpoints else "has no model server"
    head = Text("✔ ", "green").append(f"{model} {version} {left}", "bold")
    if dry_run:
        would = left.replace("is ", "would be ", 1).replace("has ", "would have ", 1)
        head = Text(f"{model} {version} {would}; nothing was written.", "bold")
    show({"version": version_document(made), "dry_run": dry_run}, head, as_json=as_json)


@app.command("list")
def list_versions(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's.")] = None,
    utc: Utc = False,
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
            when_words(record.created_at, utc=utc),
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
def show_version(
    *,
    model: ModelName,
    version: VersionLabel,
    describe: Annotated[
        bool, typer.Option("--describe", help="Print a FILE for version register --from, of the next version.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one version."""

    async def read(
        control_plane: ControlPlane,
    ) -> tuple[VersionRecord, VersionLoadingRecord | None, Sequence[ServerRecord]]:
        record = await control_plane.registry.show_version(model, version)
        loading = await control_plane.loading.show(model, version)
        return record, loading, () if loading is None else await control_plane.loading.list_servers()

    record, loading, servers = with_control_plane(read)
    if describe:
        described = description_of(record._asdict(), is_loaded_by_agents=loading is not None)
        typer.echo(json.dumps(described, indent=2, ensure_ascii=False))
        return
    head = Text().append(f"{record.model_name} {record.version}", "bold").append(f"  {record.status}", "cyan")
    pinned = None if loading is None else loading.pinned_digest
    loaded = [] if loading is None else [("loaded", loaded_words(loading))]
    parts = [facts([*version_facts(record, pinned), *loaded, *status_facts(record)]), *tensors_text(record)]
    document = {"version": version_document(record), "loading": None}
    if loading is not None:
        parts += ["", *servers_text(loading, servers), *too_few_texts(loading, servers)]
        document["loading"] = loading_document(loading)
    show(document, head, *parts, as_json=as_json)


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
    show(change_document(changed, dry_run=dry_run), head, then, as_json=as_json)


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
    show(change_document(changed, dry_run=dry_run), head, then, as_json=as_json)


def _set_retired(model: str, version: str, reason: str | None, *, is_retired: bool, dry_run: bool) -> VersionChange:
    actor = actor_of_command((reason or "").strip() or None)
    return with_registry(
        lambda registry: registry.set_retired(model, version, actor, is_retired=is_retired, dry_run=dry_run)
    )
