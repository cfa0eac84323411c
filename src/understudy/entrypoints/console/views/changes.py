"""Changes of a policy: who, with what, and why."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.core.durations import moment
from understudy.entrypoints.cli.shared.texts.change_text import change_text
from understudy.ports.registry.registry import AuditEntry
from understudy.registry.rollback_moves import newest_change

FIELD_WORDS = {
    "challenger_weight": ("challenger's share", " %"),
    "shadow_percent": ("shadow's copies", " %"),
    "input_sample_percent": ("entities whose inputs are logged", " %"),
    "category_holdout_percent": ("entities outside of categories' roles", " %"),
    "category_roles": ("roles of categories", ""),
    "on_drift": ("when inputs drift", ""),
}
"""What fields of a policy are called where the change is told, and not a form that is filled in."""


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


def champion_change(audit: Sequence[AuditEntry]) -> AuditEntry | None:
    """Return the change that made the champion what it is; ``None`` where it is older than what was read.

    ``audit`` are the newest changes of the model's policy, newest first.
    """
    return newest_change(("champion_version",), audit)
