"""Changes of a policy: who, with what, and why."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.entrypoints.cli.audit import change_text
from understudy.ports.registry.registry import AuditEntry


class ChangeRow(NamedTuple):
    """One change of the policy."""

    at: str
    actor: str
    via: str
    text: str
    reason: str


def change_row(entry: AuditEntry, labels: Mapping[int, str]) -> ChangeRow:
    """Return an entry of the audit as a row; ``labels`` are the versions' by their ids."""
    text = f"generation {entry.generation}: {change_text(entry, labels) or 'nothing that is shown'}"
    return ChangeRow(moment(entry.changed_at.timestamp()), entry.actor, entry.via, text, entry.reason or "")


def newest_words(entry: AuditEntry) -> str:
    """Return who made a change, with what, when and why."""
    when = moment(entry.changed_at.timestamp())
    return f"by {entry.actor}, {entry.via}, {when} UTC: {entry.reason or 'no reason was given'}"


def moment(seconds: float) -> str:
    """Return a moment in UTC: ``20 Nov 13:00:07``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S}"
