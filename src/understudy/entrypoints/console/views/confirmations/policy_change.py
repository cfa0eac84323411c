"""The page that asks before a policy is changed: what a dry run would say, and the same as a command."""

from collections.abc import Mapping, Sequence
from shlex import quote
from typing import NamedTuple

from understudy.entrypoints.cli.shared.policy_changes.newcomers import Newcomer
from understudy.entrypoints.cli.shared.texts.policy_text import (
    difference_text,
    moves_text,
    rollout_warning,
    same_words,
    traffic_words,
    value_text,
    would_change_words,
)
from understudy.ports.registry.registry import ChangedPolicy
from understudy.registry.asked_change import NONE, AskedChange
from understudy.registry.policy_changes import differences, moves_traffic

_OPTIONS = {
    "champion": "--champion",
    "challenger": "--challenger",
    "challenger_weight": "--weight",
    "shadow": "--shadow",
    "shadow_percent": "--shadow-percent",
    "guard": "--guard",
    "on_drift": "--on-drift",
}


class ChangePage(NamedTuple):
    """A change that was tried and taken back."""

    model: str
    title: str
    sentence: str
    rows: tuple[tuple[str, str, str], ...]
    """What, now, and then."""
    moves: str
    """What a person is to confirm, where calls go elsewhere; else empty."""
    warnings: tuple[str, ...]
    needs_name: bool
    is_needless: bool
    fields: tuple[tuple[str, str], ...]
    """That the form sends again."""
    command: str
    back: str


class ChangeWords(NamedTuple):
    """What a change is called, the same as a command, and where it began."""

    title: str
    command: str
    back: str


class TriedChange(NamedTuple):
    """What a change would be at this moment."""

    changed: ChangedPolicy
    newcomers: Sequence[Newcomer]
    open_rollout: int | None


def change_page(words: ChangeWords, tried: TriedChange, fields: Mapping[str, str]) -> ChangePage:
    """Return what is asked before a change; ``fields`` are what the form sends again."""
    before, after = tried.changed
    found = differences(before, after)
    moves = before is not None and moves_traffic(before, after)
    warnings = [line.plain for line in rollout_warning(tried.changed, tried.open_rollout)]
    warnings += [line.plain for newcomer in tried.newcomers for line in newcomer.warnings]
    return ChangePage(
        after.model_name,
        words.title,
        would_change_words(after) if found or before is None else same_words(before),
        tuple((name, value_text(old), value_text(new)) for name, (old, new) in found.items()),
        traffic_words(before, after) if moves and before is not None else "",
        tuple(line.removeprefix("! ") for line in warnings),
        needs_name=moves,
        is_needless=before is not None and not found,
        fields=tuple(fields.items()),
        command=words.command,
        back=words.back,
    )


def set_command(model: str, asked: AskedChange) -> str:
    """Return a change of a policy as a command."""
    words = [
        f"{_OPTIONS[name]} {quote(NONE if value is None else str(value))}" for name, value in asked.changes.items()
    ]
    weights = asked.weights
    if weights is not None:
        words += [f"--arm {quote(f'{arm}={percent}')}" for arm, percent in weights.items()] or [f"--arm {NONE}"]
    return " ".join(["understudy model set", quote(model), *words, "--reason '…'"])


def restore_command(model: str, generation: int) -> str:
    """Return the restore of a policy as a command."""
    return f"understudy model restore {quote(model)} {quote(str(generation))} --reason '…'"


def done_words(changed: ChangedPolicy, reach: str) -> str:
    """Return what a change did."""
    before, after = changed
    if not changed.is_changed and before is not None:
        return f"Nothing changed: {same_words(before)}"
    moves = moves_text(before, after)
    return f"Done: {difference_text(before, after)}{moves and f'; {moves}'}. Generation {after.generation}; {reach}."
