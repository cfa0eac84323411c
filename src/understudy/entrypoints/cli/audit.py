"""``understudy audit``: who changed which policy."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from understudy.entrypoints.cli.options import AsJson, Limit
from understudy.entrypoints.cli.registry import with_registry
from understudy.entrypoints.cli.rendering import ago, nothing_as, show
from understudy.ports import AuditEntry, Registry

app = typer.Typer(no_args_is_help=True, help="List who changed which policy, when and why.", add_completion=False)
_IGNORED = {"model_name", "generation", "updated_at", "updated_by", "previous_champion"}
_FIRST = ("champion_version", "challenger_version", "challenger_weight", "shadow_version")
_USUAL: tuple[Any, ...] = (None, 0, {}, True, 100)
"""Values that a first policy has when nobody says otherwise: not worth a line."""
_ROLES = {"champion_version": "champion", "challenger_version": "challenger", "shadow_version": "shadow"}


@app.callback()
def root() -> None:
    """Make ``list`` a command of a group."""


@app.command("list")
def list_audit(
    *,
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help="Only this model's changes.")] = None,
    limit: Limit = 20,
    as_json: AsJson = False,
) -> None:
    """List the latest changes of policies, whoever made them and however: plain SQL is here too."""

    async def read(registry: Registry) -> tuple[list[AuditEntry], dict[int, str]]:
        labels = {version.id: version.version for version in await registry.list_versions(model)}
        return list(await registry.list_audit(model, limit)), labels

    entries, labels = with_registry(read)
    document = {"audit": [{**entry._asdict(), "changes": changes_of(entry, labels)} for entry in entries]}
    show(document, _listing(entries, labels) if entries else "No policy has changed yet.", as_json=as_json)


def changes_of(entry: AuditEntry, labels: Mapping[int, str]) -> dict[str, list[Any]]:
    """Return the fields that an entry changed, each with its value before and after; versions by their text."""
    before, after = entry.before or {}, entry.after or {}
    changed: dict[str, list[Any]] = {}
    for name in dict.fromkeys([*_FIRST, *after, *before]):
        if name in _IGNORED or before.get(name) == after.get(name):
            continue
        values = [before.get(name), after.get(name)]
        if name in _ROLES:
            values = [labels.get(value, f"id {value}") if value is not None else None for value in values]
        changed[_ROLES.get(name, name)] = values
    return changed


def _listing(entries: list[AuditEntry], labels: Mapping[int, str]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for entry in entries:
        head = Text().append(entry.model_name, "bold").append(f" generation {entry.generation}")
        head.append(f"  {entry.actor} via {entry.via}", "cyan")
        head.append(f"\n{_change_text(entry, labels)}")
        if entry.reason:
            head.append(f"\n“{entry.reason}”", "dim")
        grid.add_row(ago(entry.changed_at), head)
    return grid


def _change_text(entry: AuditEntry, labels: Mapping[int, str]) -> str:
    if entry.action == "delete":
        return "policy deleted: the model is not served any more"
    changed = changes_of(entry, labels)
    if entry.action == "insert":
        shown = {name: new for name, (_, new) in changed.items() if new not in _USUAL}
        return "first policy: " + ", ".join(f"{name} {value}" for name, value in shown.items())
    return ", ".join(f"{name} {nothing_as(old)} → {nothing_as(new)}" for name, (old, new) in changed.items())
