"""What a change of the audit changed, in a line."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from understudy.entrypoints.cli.shared.rendering import nothing_as
from understudy.entrypoints.documents.policies import changes_of
from understudy.ports.registry.registry import AuditEntry, AuditSubject

_USUAL: tuple[Any, ...] = (None, 0, {}, True, 100)
"""Values that a first policy has by default: not worth a line."""
MAX_SHOWN = 60
"""Characters of a value; ``--json`` has all of it."""


def change_text(
    entry: AuditEntry, labels: Mapping[int, str], words: Mapping[str, tuple[str, str]] = MappingProxyType({})
) -> str:
    """Return what an entry changed, in one line; versions by their labels.

    ``words`` are what fields of a policy are called there, each with its unit; without, they have their own names.
    """
    if entry.subject is not AuditSubject.POLICY:
        return _registry_text(entry)
    if entry.action == "delete":
        return "policy deleted: the model is not served any more"
    changed = changes_of(entry, labels)
    if entry.action == "insert":
        shown = {name: new for name, (_, new) in changed.items() if new not in _USUAL}
        return "first policy: " + ", ".join(_field(name, (value,), words) for name, value in shown.items())
    return ", ".join(_field(name, values, words) for name, values in changed.items())


def _field(name: str, values: Sequence[Any], words: Mapping[str, tuple[str, str]]) -> str:
    title, unit = words.get(name, (name, ""))
    shown = (f"{nothing_as(value)}{unit if isinstance(value, int) else ''}" for value in values)
    return f"{title} {' → '.join(shown)}"


def _registry_text(entry: AuditEntry) -> str:
    whole = entry.after or entry.before or {}
    named = f"endpoint {whole.get('target')}" if entry.subject is AuditSubject.ENDPOINT else entry.subject.value
    if entry.action == "delete":
        return f"{named} removed"
    if entry.action == "insert" and entry.subject is AuditSubject.SUBSCRIPTION:
        return f"{named} added for the receiver {whole.get('receiver')}"
    if entry.action == "insert":
        scopes = f" with the scopes {', '.join(whole['scopes'])}" if "scopes" in whole else ""
        return f"{named} added{scopes}"
    changed = ", ".join(
        f"{name} {value_shown(old)} → {value_shown(new)}" for name, (old, new) in changes_of(entry, {}).items()
    )
    return f"{entry.subject}: {changed}"


def value_shown(value: object) -> str:
    """Return a value of a change in a line; a document and a long text are cut."""
    if isinstance(value, dict):
        return "{…}"
    text = nothing_as(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
