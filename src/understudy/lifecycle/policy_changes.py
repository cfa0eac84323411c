"""What a change of a policy means: which fields go with it, which differ, and whether it moves traffic."""

from collections.abc import Mapping
from typing import Any

from understudy.ports import PolicyRecord

_MOVING = frozenset({"champion", "challenger", "challenger_weight", "salt", "category_roles"})
"""Fields whose change sends somebody's calls elsewhere."""
_ABOUT_THE_RECORD = frozenset(
    {"model_name", "generation", "updated_at", "updated_by", "proxies", "proxies_on_generation", "previous_champion"}
)


def complete_changes(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes with what follows from them: without a challenger its weight is 0."""
    complete = dict(changes)
    if "challenger" in complete and complete["challenger"] is None:
        complete.setdefault("challenger_weight", 0)
    return complete


def differences(before: PolicyRecord | None, after: PolicyRecord) -> dict[str, tuple[Any, Any]]:
    """Return the fields of the policy that differ, each with its value before and after."""
    old = before._asdict() if before is not None else {}
    return {
        name: (old.get(name), value)
        for name, value in after._asdict().items()
        if name not in _ABOUT_THE_RECORD and old.get(name) != value
    }


def moves_traffic(before: PolicyRecord, after: PolicyRecord) -> bool:
    """Whether somebody's calls go elsewhere; a challenger without weight and a shadow move none."""
    changed = differences(before, after).keys() & _MOVING
    if before.challenger_weight == after.challenger_weight == 0:
        changed -= {"challenger", "salt", "category_roles"}
    return bool(changed)
