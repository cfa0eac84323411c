"""A change of a model's policy: what was asked for, what it would move, and whether it is made."""

import re
from collections.abc import Sequence
from functools import partial
from shlex import quote
from typing import Any, NamedTuple

from rich.text import Text

from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.options import confirm_traffic_move
from understudy.entrypoints.cli.shared.policy_changes.newcomers import Newcomer, newcomers_of
from understudy.entrypoints.cli.shared.rendering import advise, facts, show
from understudy.entrypoints.cli.shared.session import with_registry
from understudy.entrypoints.cli.shared.texts.policy_text import difference_text, moves_text, rollout_warning, value_text
from understudy.entrypoints.documents.policies import policy_document
from understudy.lifecycle.policy_changes import differences, moved_entities_percent, moves_traffic, with_arms
from understudy.lifecycle.registry import set_policy
from understudy.ports.registry.registry import Actor, ChangedPolicy, PolicyRecord, Registry

NONE = "none"


class Asked(NamedTuple):
    """A change of a model's policy as a command asks for it."""

    model: str
    changes: dict[str, Any]
    weights: dict[str, int] | None
    """Of the further arms; ``None``: they stay."""
    actor: Actor
    expect_generation: int | None
    dry_run: bool
    yes: bool


def make_change(wanted: Asked, *, as_json: bool) -> None:
    """Change a policy, or say what a dry run would, and show it."""
    changed, newcomers = with_registry(lambda registry: _change(registry, wanted))
    warnings = [*_rollout_warning(changed), *(line for newcomer in newcomers for line in newcomer.warnings)]
    document = _document(changed, newcomers, dry_run=wanted.dry_run)
    show(document, *_verdict(*changed, dry_run=wanted.dry_run), *warnings, as_json=as_json)


def _rollout_warning(changed: ChangedPolicy) -> list[Text]:
    return rollout_warning(changed, changed.before.rollout_id if changed.before is not None else None)


def _document(changed: ChangedPolicy, newcomers: Sequence[Newcomer], *, dry_run: bool) -> dict[str, Any]:
    before, after = changed
    return {
        "policy": policy_document(after),
        "changed": changed.is_changed and not dry_run,
        "moved_percent": None if before is None else moved_entities_percent(before, after),
        "input_differences": {newcomer.version: newcomer.found._asdict() for newcomer in newcomers},
        "dry_run": dry_run,
    }


async def _change(registry: Registry, asked: Asked) -> tuple[ChangedPolicy, list[Newcomer]]:
    """Make the change, after the database's verdict on it and the question whether to make it."""
    standing = (await registry.show_model(asked.model)).policy
    wanted, expected = asked.changes, asked.expect_generation
    if asked.weights is not None:
        wanted = with_arms(standing, asked.changes, asked.weights)
        # Ranges are computed from what was there, so they are for that alone.
        expected = standing.generation if expected is None and standing is not None else expected
    make = partial(set_policy, registry, asked.model, wanted, asked.actor)
    proposed = await make(expected_generation=expected, dry_run=True)
    newcomers = await newcomers_of(registry, *proposed)
    before, after = proposed
    if asked.dry_run:
        return proposed, newcomers
    if before is not None and moves_traffic(before, after):
        _confirm(before, after, newcomers, yes=asked.yes)
        # What was confirmed is a change of what was shown; with --yes there was no look to go stale.
        expected = expected if asked.yes or expected is not None else before.generation
    return await make(expected_generation=expected), newcomers


def _confirm(before: PolicyRecord, after: PolicyRecord, newcomers: list[Newcomer], *, yes: bool) -> None:
    moves = moves_text(before, after)
    what = f"This moves production traffic: {difference_text(before, after)}{moves and f'; {moves}'}"
    if not yes:
        advise(*(line.plain for line in _rollout_warning(ChangedPolicy(before, after))))
        advise(*(line.plain for newcomer in newcomers for line in newcomer.warnings))
    confirm_traffic_move(after.model_name, what, yes=yes)


def changes_of(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the fields to change; ``none`` takes a role or the salt away."""
    changes = {name: value for name, value in asked.items() if value is not None}
    for name in ("challenger", "shadow", "salt"):
        if changes.get(name) == NONE:
            changes[name] = None
    return changes


def arm_weights_of(asked: Sequence[str]) -> dict[str, int] | None:
    """Return the percent of each further arm that is asked for; nothing for ``none``, ``None`` when none is asked for.

    Raises:
        CommandRefused: It is not ``VERSION=PERCENT``, or a version is named twice.
    """
    if not asked:
        return None
    if list(asked) == [NONE]:
        return {}
    weights: dict[str, int] = {}
    for text in asked:
        version, _, percent = text.rpartition("=")
        if not version or version in weights or not re.fullmatch(r"\d{1,3}", percent):
            raise CommandRefused(
                ExitCode.USAGE, f"--arm: {text!r} is no share of a version", "For example --arm 9=10, or --arm none."
            )
        weights[version] = int(percent)
    return weights


def _verdict(before: PolicyRecord | None, after: PolicyRecord, *, dry_run: bool) -> list[Any]:
    if before is not None and not differences(before, after):
        return [f"{after.model_name} is like that already (generation {before.generation}); nothing was changed."]
    pairs = [
        (name, f"{value_text(old)} → {value_text(new)}" if before is not None else value_text(new))
        for name, (old, new) in differences(before, after).items()
    ]
    moves = moves_text(before, after)
    if moves:
        pairs.append(("moves", moves))
    if dry_run:
        return [Text(f"Would change {after.model_name}; nothing was changed.", "bold"), facts(pairs)]
    head = Text("✔ ", "green").append(f"{after.model_name} is at generation {after.generation}", "bold")
    undo = f"→ understudy model show {quote(after.model_name)} says when every proxy acts on it"
    return [head, facts(pairs), undo]
