"""A change of a model's policy: what was asked for, what it would move, and whether it is made."""

from collections.abc import Sequence
from shlex import quote
from typing import Any, NamedTuple

from rich.text import Text

from understudy.bootstrap.control_plane import ControlPlane
from understudy.entrypoints.cli.model.traffic_warnings import traffic_warnings
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.cli.shared.example_calls import champion_warning
from understudy.entrypoints.cli.shared.options import confirm_traffic_move
from understudy.entrypoints.cli.shared.policy_changes.newcomers import Newcomer, newcomers_of
from understudy.entrypoints.cli.shared.rendering import advise, facts, show
from understudy.entrypoints.cli.shared.session import with_control_plane
from understudy.entrypoints.cli.shared.texts.policy_text import (
    difference_pairs,
    rollout_warning,
    same_words,
    traffic_words,
    would_change_words,
)
from understudy.entrypoints.documents.policies import policy_document
from understudy.errors import PolicyRefused
from understudy.ports.registry.registry import Actor, ChangedPolicy, PolicyRecord
from understudy.registry.asked_change import NONE, AskedChange, settled
from understudy.registry.asked_change import arm_weights_of as asked_arm_weights
from understudy.registry.asked_change import make_change as make_policy_change
from understudy.registry.policy_changes import differences, moved_entities_percent, moves_traffic
from understudy.registry.policy_files import open_rollout_of
from understudy.registry.policy_restore import restored_change


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
    restored: int | None = None
    """The generation whose policy is to be there again, in the place of ``changes`` and ``weights``."""


class _Made(NamedTuple):
    """A change that was made, or tried."""

    changed: ChangedPolicy
    newcomers: Sequence[Newcomer]
    open_rollout: int | None
    """The rollout that moved the split before; a guard moves none."""
    of_traffic: Sequence[Text] = ()
    """What was taken back from a version that gets more calls, and that no monitor would do it again."""
    of_champion: Sequence[Text] = ()
    """What keeps a new champion from answering."""

    @property
    def warnings(self) -> list[Text]:
        of_inputs = (line for newcomer in self.newcomers for line in newcomer.warnings)
        return [*rollout_warning(self.changed, self.open_rollout), *of_inputs, *self.of_traffic, *self.of_champion]


def make_change(wanted: Asked, *, as_json: bool) -> None:
    """Change a policy, or say what a dry run would, and show it."""
    made = with_control_plane(lambda control_plane: _change(control_plane, wanted))
    document = _document(made.changed, made.newcomers, dry_run=wanted.dry_run)
    show(document, *_verdict(*made.changed, dry_run=wanted.dry_run), *made.warnings, as_json=as_json)


def _document(changed: ChangedPolicy, newcomers: Sequence[Newcomer], *, dry_run: bool) -> dict[str, Any]:
    before, after = changed
    return {
        "policy": policy_document(after),
        "changed": changed.is_changed and not dry_run,
        "moved_percent": None if before is None else moved_entities_percent(before, after),
        "input_differences": {newcomer.version: newcomer.found._asdict() for newcomer in newcomers},
        "dry_run": dry_run,
    }


async def _change(control_plane: ControlPlane, asked: Asked) -> _Made:
    """Make the change, after the database's verdict on it and the question whether to make it."""
    registry = control_plane.registry
    if asked.restored is None:
        wanted = AskedChange(asked.model, asked.changes, asked.weights, asked.expect_generation)
        wanted = await settled(registry, wanted)
    else:
        wanted = await restored_change(registry, asked.model, asked.restored)
    proposed = await make_policy_change(registry, wanted, asked.actor, dry_run=True)
    before, after = proposed
    open_rollout = None if before is None else await open_rollout_of(control_plane.rollouts, before)
    of_traffic = await traffic_warnings(control_plane, proposed)
    tried = _Made(proposed, await newcomers_of(registry, *proposed), open_rollout, of_traffic)
    if asked.dry_run:
        return tried
    if before is not None and moves_traffic(before, after):
        if not asked.yes:
            advise(*(line.plain for line in tried.warnings))
        confirm_traffic_move(after.model_name, traffic_words(before, after), yes=asked.yes)
        # What was confirmed is a change of what was shown; with --yes there was no look to go stale.
        if not asked.yes and wanted.expected_generation is None:
            wanted = wanted._replace(expected_generation=before.generation)
    made = await make_policy_change(registry, wanted, asked.actor)
    return tried._replace(changed=made, of_champion=await champion_warning(control_plane, made))


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
    try:
        return asked_arm_weights(asked) if asked else None
    except PolicyRefused as problem:
        raise CommandRefused(ExitCode.USAGE, f"--{problem.detail}", "For example --arm 9=10, or --arm none.") from None


def _verdict(before: PolicyRecord | None, after: PolicyRecord, *, dry_run: bool) -> list[Any]:
    if before is not None and not differences(before, after):
        return [same_words(before)]
    pairs = difference_pairs(before, after)
    if dry_run:
        return [Text(would_change_words(after), "bold"), facts(pairs)]
    head = Text("✔ ", "green").append(f"{after.model_name} is at generation {after.generation}", "bold")
    undo = f"→ understudy model show {quote(after.model_name)} says when every proxy acts on it"
    return [head, facts(pairs), undo]
