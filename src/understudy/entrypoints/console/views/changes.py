"""Changes of a policy: who, with what, and why."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.lifecycle.rollback_moves import newest_change, took_back
from understudy.ports.registry.registry import AuditEntry

FIELD_WORDS = {
    "challenger_weight": ("challenger's share", " %"),
    "shadow_percent": ("shadow's copies", " %"),
    "input_sample_percent": ("entities whose inputs are logged", " %"),
    "category_holdout_percent": ("entities outside of categories' roles", " %"),
    "category_roles": ("roles of categories", ""),
    "on_drift": ("when inputs drift", ""),
}
"""What fields of a policy are called where the change is told, and not a form that is filled in."""
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
    text = f"generation {entry.generation}: {change_text(entry, labels, FIELD_WORDS) or 'nothing that is shown'}"
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


def hidden_rollback(audit: Sequence[AuditEntry], newest: RolloutState, now: float, labels: Mapping[int, str]) -> str:
    """Return that calls were taken back before a rollout began which hides that.

    Empty where none were, or long ago, or where the later rollout has succeeded.

    Args:
        audit: The newest changes of the model's policy, newest first.
        newest: Its newest rollout or guard.
        now: When this was read, in seconds since the epoch.
        labels: Of its versions, by their ids.
    """
    is_settled = newest.kind is Kind.ROLLOUT and newest.phase is Phase.SUCCEEDED
    earlier = (one for one in audit if one.changed_at.timestamp() < newest.started_at and took_back(one))
    found = None if is_settled else next(earlier, None)
    if found is None or now - found.changed_at.timestamp() >= NEWS_SECONDS:
        return ""
    return f"Earlier, calls{_from_words(found, labels)} were taken back {newest_words(found)}"


def _from_words(entry: AuditEntry, labels: Mapping[int, str]) -> str:
    """Return from which version a change took calls back; empty where that is not known."""
    before, after = entry.before or {}, entry.after or {}
    was_champion = before.get("champion_version") != after.get("champion_version")
    label = labels.get(before.get("champion_version" if was_champion else "challenger_version") or 0)
    return f" of version {label}" if label else ""


def moment(seconds: float) -> str:
    """Return a moment in UTC: ``20 Nov 13:00:07``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%d %b %H:%M:%S}"
