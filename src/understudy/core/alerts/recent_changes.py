"""What changed around a model of late: for who is paged about a champion, which has no version beside it to compare."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

RECENT_SECONDS = 3_600.0
MAX_CHANGES = 20
"""The newest ones are told; of the others their number."""
CHANGED_RATIO = 1.5
"""Traffic that is so many times that of the hour before, or so many times less, is said to have changed."""
_FOLLOWS = frozenset(
    {"model_name", "generation", "updated_at", "updated_by", "previous_champion", "rollout_id", "guard_id"}
)
_ROLES = {"champion_version": "champion", "challenger_version": "challenger", "shadow_version": "shadow"}
_FIRST = ("champion_version", "challenger_version", "challenger_weight", "shadow_version")
_MAX_CHARACTERS = 60


class Change(NamedTuple):
    """One row of an audit."""

    at: float
    """In seconds since the epoch."""
    what: str
    """``policy``, or ``version 7`` or ``endpoint of version 7``, with the columns that changed."""
    actor: str
    via: str
    reason: str | None


class Traffic(NamedTuple):
    """Calls a minute that model servers were asked, without those that a cache answered."""

    now: float
    """Of the last hour."""
    before: float
    """Of the hour before it."""

    @property
    def is_changed(self) -> bool:
        """Whether it is another traffic than before."""
        low, high = sorted((self.now, self.before))
        return high > 0 and high >= CHANGED_RATIO * low

    @property
    def words(self) -> str:
        """Both hours, and whether that is a change."""
        change = f" = {self.now / self.before:.2g}x" if self.before else ""
        said = "" if self.is_changed else ", about the same"
        return f"{self.now:,.1f} calls a minute, {self.before:,.1f} in the hour before{change}{said}"


class RecentChanges(NamedTuple):
    """What changed around a model within an hour."""

    changes: tuple[Change, ...]
    """The newest first, :data:`MAX_CHANGES` at most."""
    total: int
    """How many there were."""
    traffic: Traffic
    drifting: tuple[str, ...]
    """Subjects of the champion that drift, by the newest hour."""

    @property
    def lines(self) -> list[tuple[str, str]]:
        """What changed, as named facts."""
        more = self.total - len(self.changes)
        listed = [f"{change.what}, by {change.actor} via {change.via}" for change in self.changes]
        listed += [f"and {more} more: understudy audit list has them"] if more else []
        drifts = ", ".join(self.drifting)
        return [
            ("changes", "\n".join(listed) or "none of its policy, versions and endpoints"),
            ("traffic", self.traffic.words),
            ("drift", f"{drifts} of the champion" if drifts else "none known of the champion"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "changes": [change._asdict() for change in self.changes],
            "total": self.total,
            "calls_per_minute": self.traffic._asdict(),
            "drifting": list(self.drifting),
        }


def policy_change(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, labels: Mapping[int, str]) -> str:
    """Return what a change of a policy changed; versions by their labels."""
    if after is None:
        return "policy deleted"
    old = before or {}
    names = [
        name for name in dict.fromkeys([*_FIRST, *after]) if name not in _FOLLOWS and old.get(name) != after.get(name)
    ]
    parts = [f"{_ROLES.get(name, name)} {_shown(name, old, labels)} → {_shown(name, after, labels)}" for name in names]
    return ": ".join([f"policy {'made' if before is None else 'changed'}", *filter(None, [", ".join(parts)])])


def registry_change(
    subject: str, version: str | None, action: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> str:
    """Return what a change of a version or of an endpoint changed, with its address."""
    named = f"version {version}" if subject == "version" else f"endpoint of version {version}"
    if action == "update":
        names = after or {}
        parts = [f"{name} {_short((before or {}).get(name))} → {_short(value)}" for name, value in names.items()]
        return f"{named}: {', '.join(parts)}"
    target = (after or before or {}).get("target")
    address = f" {_short(target)}" if target else ""
    return f"{named}{address} {'registered' if action == 'insert' else 'deleted'}"


def newest(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return the changes that are told."""
    return tuple(sorted(changes, key=lambda change: -change.at)[:MAX_CHANGES])


def _shown(name: str, row: Mapping[str, Any], labels: Mapping[int, str]) -> str:
    value = row.get(name)
    return labels.get(value, str(value)) if name in _ROLES and isinstance(value, int) else _short(value)


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
