"""What a rollout, a guard or a rollback did to a policy: where a file would undo it, and what is told of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.durations import moment
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.core.routing.buckets import BUCKETS
from understudy.ports.registry.registry import AuditEntry, PolicyRecord
from understudy.ports.rollout.rollout_store import MONITOR, VIA_CONSOLE, VIA_ROLLOUT

Version = int | str
"""Of an entry of the audit: its id, or over HTTP its label."""
_BEGINS, _PROMOTED = ("aborted by", "goes on by"), "promoted by"
"""Words by which the audit's reason shows that an operator told a rollout to do it. The audit names the console as the
way for such a change."""
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
"""How long people who open the model's page are told of a rollback."""
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


def taken_back(entry: AuditEntry) -> tuple[Version, ...]:
    """Return the versions whose calls a change of a policy took back.

    Of a champion that makes room for the one before, it is that champion; else, and beside it, each version that had a
    share and has none, where the champion answers more calls than before. A new champion takes nothing back.
    """
    before, after = entry.before, entry.after
    if before is None or after is None:
        return ()
    had, has = _shares(before), _shares(after)
    was, champion = before["champion_version"], after["champion_version"]
    if was != champion:
        is_way_back = champion == before.get("previous_champion") and before.get("challenger_version") != champion
        if not is_way_back:
            return ()
    elif has.get(champion, 0) <= had.get(champion, 0):
        return ()
    ended = (version for version, share in had.items() if share and not has.get(version))
    return tuple(dict.fromkeys([*([was] if was != champion else []), *ended]))


def _shares(row: Mapping[str, Any]) -> dict[Version, int]:
    """Return how many percent of the entities each version has by a policy's row."""
    shares: dict[Version, int] = {}
    if row.get("challenger_version") is not None:
        shares[row["challenger_version"]] = row.get("challenger_weight") or 0
    for arm in row.get("arms") or ():
        version = arm.get("version", arm["version_id"])
        shares[version] = shares.get(version, 0) + arm["last"] + 1 - arm["first"]
    return {row["champion_version"]: BUCKETS - sum(shares.values()), **shares}


def _gaining(entry: AuditEntry) -> set[Version]:
    """Return the versions to which a change gave calls."""
    had, has = _shares(entry.before or entry.after or {}), _shares(entry.after or entry.before or {})
    return {version for version, share in has.items() if share > had.get(version, 0)}


def hidden_rollback(audit: Sequence[AuditEntry], newest: RolloutState, now: float, labels: Mapping[int, str]) -> str:
    """Return words about a rollback that a later rollout hides.

    Empty where there was none, it is long ago, or the later rollout has succeeded.

    Args:
        audit: The newest changes of the model's policy, newest first.
        newest: Its newest rollout or guard.
        now: When this was read, in seconds since the epoch.
        labels: Of its versions, by their ids.
    """
    is_settled = newest.kind is Kind.ROLLOUT and newest.phase is Phase.SUCCEEDED
    before = (one for one in _news(audit, now) if one.entry.changed_at.timestamp() < newest.started_at)
    found = None if is_settled else next((one for one in before if one.versions), None)
    return "" if found is None else _words(found.entry, [_label(version, labels) for version in found.versions])


def earlier_rollback(
    audit: Sequence[AuditEntry], versions: Collection[str], now: float, labels: Mapping[int, str]
) -> str:
    """Return that calls of one of these versions were taken back of late; empty where none were.

    A version to which a later change gave calls is not told of: that change said already what it was about.

    Args:
        audit: The newest changes of the model's policy, newest first; over HTTP they name versions by their labels.
        versions: By their labels, those that are to get calls.
        now: When this was read, in seconds since the epoch.
        labels: Of the model's versions, by their ids.
    """
    open_ones = set(versions)
    for one in _news(audit, now):
        told = [label for version in one.versions if (label := _label(version, labels)) in open_ones]
        if told:
            return _words(one.entry, told)
        open_ones -= {_label(version, labels) for version in _gaining(one.entry)}
    return ""


def newest_words(entry: AuditEntry) -> str:
    """Return who made a change, with what, when and why."""
    when = moment(entry.changed_at.timestamp())
    who = f"the {MONITOR}" if entry.actor == MONITOR else entry.actor
    return f"by {who} via {entry.via} at {when} UTC: {entry.reason or 'no reason was given'}"


def _is_about_another(
    field: str, entry: AuditEntry, wanted: Mapping[str, Any], policy: PolicyRecord, newest: AuditEntry
) -> bool:
    """Whether it took another challenger's share than the one that the file would give a share."""
    if field != "challenger_weight":
        return False
    is_of_current = (entry.after or {}).get("challenger_version") == (newest.after or {}).get("challenger_version")
    is_for_current = wanted.get("challenger", policy.challenger) == policy.challenger
    return bool(is_of_current != is_for_current)


class _Change(NamedTuple):
    entry: AuditEntry
    versions: Collection[Version]
    """Whose calls it took back; often of none."""


def _news(audit: Sequence[AuditEntry], now: float) -> Iterable[_Change]:
    """Return the changes of late, newest first.

    A champion that comes back by hand, after it was taken back itself, was mended: the version that answered in its
    place did nothing bad.
    """
    found, bad = [], set[Version]()
    for entry in reversed(audit):
        versions = taken_back(entry)
        before, after = entry.before or {}, entry.after or {}
        if after.get("champion_version") in bad and not _is_move(entry):
            versions = tuple(version for version in versions if version != before.get("champion_version"))
        bad = (bad - _gaining(entry)) | set(versions)
        found.append(_Change(entry, versions))
    return (one for one in reversed(found) if now - one.entry.changed_at.timestamp() < NEWS_SECONDS)


def _words(entry: AuditEntry, labels: Sequence[str]) -> str:
    named = " and ".join(label for label in labels if label)
    versions = f" of version{'s' if ' and ' in named else ''} {named}" if named else ""
    return f"Earlier, calls{versions} were taken back {newest_words(entry)}"


def _label(version: Version, labels: Mapping[int, str]) -> str:
    """Return a version's label, empty where it is not known."""
    return version if isinstance(version, str) else labels.get(version, "")
