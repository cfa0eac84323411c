"""Models, policies and the audit as JSON."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from understudy.core.routing.arms import BucketRange, arm_percents
from understudy.ports.registry.registry import AppliedFile, AuditEntry, AuditSubject, ModelRecord, PolicyRecord

if TYPE_CHECKING:  # a list of models compares none with its file
    from understudy.registry.policy_files import Contradiction

_IGNORED = {"model_name", "generation", "updated_at", "updated_by", "previous_champion", "rollout_id", "guard_id"}
"""What goes with a change, by triggers or in a rollout's own transaction; ``before`` and ``after`` have it."""
_FIRST = ("champion_version", "challenger_version", "challenger_weight", "shadow_version")
_VERSIONS = {*_FIRST, "previous_champion"} - {"challenger_weight"}
_ROLES = {"champion_version": "champion", "challenger_version": "challenger", "shadow_version": "shadow"}


def policy_document(policy: PolicyRecord) -> dict[str, Any]:
    """Return a policy as JSON."""
    arms = [{"version": arm, "first": first, "last": last} for arm, first, last in policy.arms]
    return {**policy._asdict(), "arms": arms}


def applied_document(applied: AppliedFile) -> dict[str, Any]:
    """Return the file that a policy was last applied from as JSON."""
    document = applied._asdict()
    del document["model_name"]
    return document


def contradiction_document(contradiction: "Contradiction") -> dict[str, Any]:
    """Return a field that others changed since its file was applied as JSON."""
    by = contradiction.by
    changed = None if by is None else {"by": by.actor, "via": by.via, "at": by.changed_at, "reason": by.reason}
    said = {"said": contradiction.said, "now": contradiction.now, "is_move": contradiction.is_move}
    return {"field": contradiction.field, **said, "changed": changed}


def model_document(model: ModelRecord) -> dict[str, Any]:
    """Return a model as JSON."""
    policy = policy_document(model.policy) if model.policy is not None else None
    return {"model_name": model.model_name, "policy": policy, "version_count": model.version_count}


def audit_document(entries: Iterable[AuditEntry], labels: Mapping[int, str]) -> dict[str, Any]:
    """Return changes as JSON; ``labels`` are the versions' labels by their ids."""
    return {"audit": [_entry_document(entry, labels) for entry in entries]}


def _entry_document(entry: AuditEntry, labels: Mapping[int, str]) -> dict[str, Any]:
    rows = {"before": _row_document(entry.before, labels), "after": _row_document(entry.after, labels)}
    changes = {
        name: [_value_document(name, value, labels) for value in values]
        for name, values in changes_of(entry, labels).items()
    }
    return {**entry._asdict(), **rows, "changes": changes}


def _row_document(row: Mapping[str, Any] | None, labels: Mapping[int, str]) -> dict[str, Any] | None:
    """Return a row with moments and versions as all documents have them: the trigger wrote it as the table has it."""
    if row is None:
        return None
    return {name: _value_document(name, value, labels) for name, value in row.items()}


def _value_document(name: str, value: Any, labels: Mapping[int, str]) -> Any:
    if isinstance(value, int) and name in _VERSIONS:
        return version_label(value, labels)
    if name == "arms" and isinstance(value, list):
        return [{**arm, "version": version_label(arm["version_id"], labels)} for arm in value]
    if isinstance(value, str) and name.endswith("_at"):
        try:
            return datetime.fromisoformat(value)
        except ValueError:
            return value
    return value


def changes_of(entry: AuditEntry, labels: Mapping[int, str]) -> dict[str, list[Any]]:
    """Return the fields that an entry changed, each with its value before and after; versions by their labels."""
    before, after = entry.before or {}, entry.after or {}
    changed: dict[str, list[Any]] = {}
    ignored = _IGNORED if entry.subject is AuditSubject.POLICY else frozenset()
    for name in dict.fromkeys([*_FIRST, *after, *before]):
        if name in ignored or before.get(name) == after.get(name):
            continue
        values = [before.get(name), after.get(name)]
        if name in _ROLES:
            # Over HTTP an entry has the labels already.
            values = [version_label(value, labels) if isinstance(value, int) else value for value in values]
        if name == "arms":
            values = [_percents(ranges, labels) if ranges is not None else None for ranges in values]
        changed[_ROLES.get(name, name)] = values
    return changed


def _percents(ranges: Iterable[Mapping[str, int]], labels: Mapping[int, str]) -> dict[str, int]:
    """Return the percent of each further arm; the audit entry itself has its buckets."""
    return arm_percents(
        [BucketRange(version_label(arm["version_id"], labels), arm["first"], arm["last"]) for arm in ranges]
    )


def version_label(version_id: int, labels: Mapping[int, str]) -> str:
    """Return a version's label, or its id when the version no longer exists."""
    return labels.get(version_id, f"id {version_id}")
