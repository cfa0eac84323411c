"""What a rollout, a guard or a rollback did to a policy: where a file would undo it, and what is told of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from understudy.core.durations import moment
from understudy.core.rollout.state import Kind, Phase, RolloutState
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
NEWS_SECONDS = 86_400.0
"""How long a rollback is told to who looks at the model."""
UNWATCHED = "No monitor looks at open rollouts and guards: nothing is taken back by itself."


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
    earlier = (one for one in _news(audit, now) if one.changed_at.timestamp() < newest.started_at)
    found = None if is_settled else next(earlier, None)
    return "" if found is None else _words(found, labels)


def earlier_rollback(
    audit: Sequence[AuditEntry], versions: Collection[str], now: float, labels: Mapping[int, str]
) -> str:
    """Return that calls of one of these versions were taken back of late; empty where none were.

    Args:
        audit: The newest changes of the model's policy, newest first; over HTTP they name versions by their labels.
        versions: By their labels, those that are to get calls.
        now: When this was read, in seconds since the epoch.
        labels: Of the model's versions, by their ids.
    """
    found = next((one for one in _news(audit, now) if _taken_from(one, labels) in versions), None)
    return "" if found is None else _words(found, labels)


def newest_words(entry: AuditEntry) -> str:
    """Return who made a change, with what, when and why."""
    when = moment(entry.changed_at.timestamp())
    return f"by {entry.actor} via {entry.via} at {when} UTC: {entry.reason or 'no reason was given'}"


def _is_about_another(
    field: str, entry: AuditEntry, wanted: Mapping[str, Any], policy: PolicyRecord, newest: AuditEntry
) -> bool:
    """Whether it took another challenger's share than the one that the file would give a share."""
    if field != "challenger_weight":
        return False
    is_of_current = (entry.after or {}).get("challenger_version") == (newest.after or {}).get("challenger_version")
    is_for_current = wanted.get("challenger", policy.challenger) == policy.challenger
    return bool(is_of_current != is_for_current)


def _news(audit: Iterable[AuditEntry], now: float) -> Iterable[AuditEntry]:
    return (one for one in audit if now - one.changed_at.timestamp() < NEWS_SECONDS and took_back(one))


def _words(entry: AuditEntry, labels: Mapping[int, str]) -> str:
    label = _taken_from(entry, labels)
    version = f" of version {label}" if label else ""
    return f"Earlier, calls{version} were taken back {newest_words(entry)}"


def _taken_from(entry: AuditEntry, labels: Mapping[int, str]) -> str:
    """Return from which version a change took calls back; empty where that is not known."""
    before, after = entry.before or {}, entry.after or {}
    was_champion = before.get("champion_version") != after.get("champion_version")
    version = before.get("champion_version" if was_champion else "challenger_version")
    return version if isinstance(version, str) else labels.get(version or 0, "")
