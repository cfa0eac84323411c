"""What a rollout, a guard or a rollback did to a policy, where a file would undo it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import VIA_CONSOLE, VIA_ROLLOUT

_BEGINS, _PROMOTED = ("aborted by", "goes on by"), "promoted by"
"""How a rollout's words for an operator's command begin, and what they have in them: given in the console, the audit
says that it came by that."""
WAY_BACK = "rollback to the champion before"
"""How the audit's reason begins where ``understudy_rollback`` gave the model its champion before."""
_MOVED = {
    "champion": ("champion_version",),
    "challenger_weight": ("challenger_weight", "champion_version"),
    "arms": ("arms",),
}
"""The columns of the audit whose newest change decides; a rollback of a promotion leaves the weight at 0. A challenger
alone moves no call."""


def moves_undone(
    wanted: Mapping[str, Any], policy: PolicyRecord, changes: Sequence[AuditEntry]
) -> dict[str, AuditEntry]:
    """Return the fields that rollouts or a rollback set, and another value of which would undo that.

    Args:
        wanted: The fields that a file would change, with its values.
        policy: As it is.
        changes: Of the policy, newest first.
    """
    found = {name: newest_change(_MOVED[name], changes) for name in wanted if name in _MOVED}
    return {
        name: entry
        for name, entry in found.items()
        if entry is not None and _is_move(entry) and not _is_about_another(name, entry, wanted, policy, changes[0])
    }


def newest_change(columns: Collection[str], entries: Iterable[AuditEntry]) -> AuditEntry | None:
    """Return the newest entry that changed one of the columns."""
    return next((entry for entry in entries if any(_is_changed(entry, column) for column in columns)), None)


def _is_changed(entry: AuditEntry, column: str) -> bool:
    return (entry.before or {}).get(column) != (entry.after or {}).get(column)


def _is_move(entry: AuditEntry) -> bool:
    if entry.before is None:
        return False
    reason = entry.reason or ""
    is_of_command = entry.via == VIA_CONSOLE and _is_of_command(entry.actor, reason)
    return entry.via == VIA_ROLLOUT or reason.startswith(WAY_BACK) or is_of_command


def _is_of_command(actor: str, reason: str) -> bool:
    """Whether a rollout made the change because an operator told it to."""
    return reason.startswith(tuple(f"{word} {actor}" for word in _BEGINS)) or f": {_PROMOTED} {actor}" in reason


def took_back(entry: AuditEntry) -> bool:
    """Whether a change of a policy took calls back: the share to 0, or the champion before in its place again."""
    before, after = entry.before, entry.after
    if before is None or after is None:
        return False
    if before["champion_version"] != after["champion_version"]:
        is_way_back = after["champion_version"] == before.get("previous_champion")
        return bool(is_way_back and before.get("challenger_version") != after["champion_version"])
    had_share = before["challenger_weight"] or before.get("arms")
    return bool(had_share) and not after["challenger_weight"] and not after.get("arms")


def _is_about_another(
    field: str, entry: AuditEntry, wanted: Mapping[str, Any], policy: PolicyRecord, newest: AuditEntry
) -> bool:
    """Whether it took another challenger's share than the one that the file would give a share."""
    if field != "challenger_weight":
        return False
    is_of_current = (entry.after or {}).get("challenger_version") == (newest.after or {}).get("challenger_version")
    is_for_current = wanted.get("challenger", policy.challenger) == policy.challenger
    return bool(is_of_current != is_for_current)
