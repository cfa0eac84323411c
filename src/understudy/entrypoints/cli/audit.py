"""``understudy audit``: which actor changed which policy, version, endpoint, key or subscription."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from understudy.entrypoints.cli.shared.options import AsJson, Limit, Utc
from understudy.entrypoints.cli.shared.rendering import show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.entrypoints.cli.shared.times import seconds_of, when_words
from understudy.entrypoints.documents.policies import audit_document
from understudy.ports.registry.registry import AuditEntry, AuditFilter, AuditSubject, Registry

app = typer.Typer(no_args_is_help=True, help="List who changed what, when and why.", add_completion=False)


@app.callback()
def root() -> None:
    """Keep ``understudy audit`` a group, though ``list`` is its only command."""


@app.command("list")
def list_audit(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's changes.")] = None,
    subject: Annotated[AuditSubject | None, typer.Option(help="Only changes of such things.")] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only changes by this person, key or process.")
    ] = None,
    via: Annotated[
        str | None, typer.Option(metavar="TOOL", help="Only changes by way of cli, http, console, apply, rollout, sql.")
    ] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only changes since so long ago: 30m, 24h.")] = None,
    limit: Limit = 20,
    utc: Utc = False,
    as_json: AsJson = False,
) -> None:
    """List the latest changes of policies, versions, endpoints, keys and subscriptions, those in plain SQL too."""
    began = None if since is None else datetime.now(UTC) - timedelta(seconds=seconds_of(since, "--since"))
    only = AuditFilter(actor, via, began)

    async def read(registry: Registry) -> tuple[list[AuditEntry], dict[int, str]]:
        labels = {version.id: version.version for version in await registry.list_versions(model)}
        return list(await registry.list_audit(model, limit, subject, only=only)), labels

    entries, labels = with_registry(read)
    listing = _listing(entries, labels, utc=utc) if entries else "Nothing of this has changed yet."
    show(audit_document(entries, labels), listing, as_json=as_json)


def _listing(entries: list[AuditEntry], labels: Mapping[int, str], *, utc: bool) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for entry in entries:
        head = Text().append(name_of_changed(entry), "bold").append(_place(entry))
        head.append(f"  {entry.actor} via {entry.via}", "cyan")
        head.append(f"\n{change_text(entry, labels)}")
        if entry.reason:
            head.append(f"\n“{entry.reason}”", "dim")
        grid.add_row(when_words(entry.changed_at, utc=utc), head)
    return grid


def name_of_changed(entry: AuditEntry) -> str:
    """Return what an entry is of: a model, or what is no model's, by itself."""
    if entry.subject in (AuditSubject.KEY, AuditSubject.SUBSCRIPTION):
        return f"{entry.subject} {entry.subject_id}"
    return str(entry.model_name)


def _place(entry: AuditEntry) -> str:
    if entry.subject is AuditSubject.POLICY:
        return f" generation {entry.generation}"
    return "" if entry.version is None else f" version {entry.version}"
