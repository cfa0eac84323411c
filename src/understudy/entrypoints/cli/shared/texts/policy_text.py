"""A policy and its change in words, as every command has them."""

from shlex import quote
from typing import Any

from rich.text import Text

from understudy.core.routing.arms import arm_percents
from understudy.entrypoints.cli.shared.rendering import nothing_as
from understudy.ports.registry.registry import ChangedPolicy, PolicyRecord


def value_text(value: Any) -> str:
    """Return a field's value; further arms as versions with their percent."""
    if not isinstance(value, tuple):
        return nothing_as(value)
    return nothing_as(", ".join(f"{arm} {percent} %" for arm, percent in arm_percents(value).items()))


def difference_text(before: PolicyRecord | None, after: PolicyRecord) -> str:
    """Return what changes, in one line."""
    from understudy.registry.policy_changes import differences  # noqa: PLC0415 - a list of models changes none

    found = differences(before, after)
    return ", ".join(f"{name} {value_text(old)} → {value_text(new)}" for name, (old, new) in found.items()) or "nothing"


def moves_text(before: PolicyRecord | None, after: PolicyRecord) -> str:
    """Return how many entities change their version; nothing when none does, or when it is unknown."""
    from understudy.registry.policy_changes import moved_entities_percent  # noqa: PLC0415 - as above

    percent = None if before is None else moved_entities_percent(before, after)
    return f"{percent} % of the entities change their version" if percent else ""


def difference_pairs(before: PolicyRecord | None, after: PolicyRecord) -> list[tuple[str, str]]:
    """Return each field that changes with its value before and after, and how many entities that moves."""
    from understudy.registry.policy_changes import differences  # noqa: PLC0415 - as above

    pairs = [
        (name, f"{value_text(old)} → {value_text(new)}" if before is not None else value_text(new))
        for name, (old, new) in differences(before, after).items()
    ]
    moves = moves_text(before, after)
    return [*pairs, ("moves", moves)] if moves else pairs


def would_change_words(after: PolicyRecord) -> str:
    """Return what a dry run says first."""
    return f"Would change {after.model_name}; nothing was changed."


def same_words(policy: PolicyRecord) -> str:
    """Return that a policy is as it is asked to be."""
    return f"{policy.model_name} is like that already (generation {policy.generation}); nothing was changed."


def traffic_words(before: PolicyRecord, after: PolicyRecord) -> str:
    """Return what a person is asked to confirm of a change that moves calls."""
    moves = moves_text(before, after)
    return f"This moves production traffic: {difference_text(before, after)}{moves and f'; {moves}'}"


def rollout_warning(changed: ChangedPolicy, rollout_id: int | None) -> list[Text]:
    """Say that an open rollout moves this split itself, and what a change beside it leads to."""
    from understudy.registry.policy_changes import moves_traffic  # noqa: PLC0415 - as above

    before, after = changed
    if before is None or rollout_id is None or not moves_traffic(before, after):
        return []
    model = quote(after.model_name)
    said = (
        f"rollout {rollout_id} of {after.model_name} is open and moves this split itself: after a change by "
        "others it waits for you, or ends with weight 0"
    )
    steer = f"→ understudy rollout show {model}; its own commands are rollout pause, resume, promote and abort {model}"
    return [Text("! ", "yellow").append(said), Text(steer)]
