"""What a change of a policy means: which fields go with it, which differ, and whether it moves traffic."""

from collections.abc import Mapping
from typing import Any

from understudy.core.routing.arms import Split, arm_percents, further_arms, moved_percent
from understudy.core.routing.buckets import BUCKETS
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import PolicyRecord

_OF_CATEGORIES = frozenset({"category_roles", "category_holdout_percent"})
MOVING = frozenset({"champion", "challenger", "challenger_weight", "salt", "arms"}) | _OF_CATEGORIES
"""Fields whose change sends calls elsewhere."""
_ABOUT_THE_RECORD = frozenset(
    {
        "model_name",
        "generation",
        "updated_at",
        "updated_by",
        "proxies",
        "proxies_on_generation",
        "previous_champion",
        "rollout_id",  # follows the split: its guard's
    }
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
    """Whether calls go elsewhere; a challenger without weight and a shadow move none."""
    changed = differences(before, after).keys() & MOVING
    if before.challenger_weight == after.challenger_weight == 0:
        changed -= {"challenger"} if before.arms or after.arms else {"challenger", "salt"} | _OF_CATEGORIES
    return bool(changed)


def with_arms(before: PolicyRecord | None, changes: Mapping[str, Any], weights: Mapping[str, int]) -> dict[str, Any]:
    """Return the changes with ranges that give further arms these weights, and move as few entities as can be.

    Args:
        before: The policy so far, if there is one. Arms that are not named keep their weight; a weight of 0 ends one.
        changes: What else is to change; the arms make room for it.
        weights: Percent of the entities by the version's text; none at all ends every arm.

    Raises:
        PolicyRefused: The arms cannot have that much together, or an arm is champion or challenger.
    """
    complete = complete_changes(changes)
    old = before.split if before is not None else Split(complete.get("champion", ""))
    new = Split(
        complete.get("champion", old.champion),
        complete.get("challenger", old.challenger),
        complete.get("challenger_weight", old.challenger_weight),
    )
    if not 0 <= new.challenger_weight <= BUCKETS:
        return complete  # what is wrong is not the arms, and the database says it best
    asked = {**arm_percents(old.arms), **weights} if weights else {}
    wanted = {arm: percent for arm, percent in asked.items() if percent}
    try:
        return {**complete, "arms": further_arms(old, new, wanted)}
    except ValueError as problem:
        raise PolicyRefused(
            f"further arms cannot have that: {problem}",
            hint="understudy model show shows who has how much; --arm VERSION=0 ends an arm.",
        ) from problem


def moved_entities_percent(before: PolicyRecord, after: PolicyRecord) -> int | None:
    """Return how many percent of the entities change their version; ``None`` if all are drawn anew, by another salt."""
    return moved_percent(before.split.ranges, after.split.ranges) if before.salt == after.salt else None
