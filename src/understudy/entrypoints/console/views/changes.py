"""Changes of a policy: who, with what, and why."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.lifecycle.rollback_moves import newest_change, took_back
from understudy.ports.registry.registry import AuditEntry

NEWS_SECONDS = 86_400.0
"""How long a rollback is told to who looks at the model."""


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
    return f"by {entry.actor} via {entry.via} at {when} UTC: {entry.reason or 'no reason was given'}"


def champion_change(audit: Sequence[AuditEntry]) -> AuditEntry | None:
    """Return the change that made the champion what it is; ``None`` where it is older than what was read.

    ``audit`` are the newest changes of the model's policy, newest first.
    """
    return newest_change(("champion_version",), audit)


def hidden_rollback(audit: Sequence[AuditEntry], began_at: float, now: float) -> str:
    """Return that calls were taken back before a rollout began which hides that; empty where it is not, or long ago.

    Args:
        audit: The newest changes of the model's policy, newest first.
        began_at: When its newest rollout or guard began.
        now: When this was read; both in seconds since the epoch.
    """
    found = next((one for one in audit if one.changed_at.timestamp() < began_at and took_back(one)), None)
    if found is None or now - found.changed_at.timestamp() >= NEWS_SECONDS:
        return ""
    return f"Earlier, calls were taken back {newest_words(found)}"


def moment(seconds: float) -> str:
    """Return a moment in UTC: ``20 Nov 13:00:07``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S}"
