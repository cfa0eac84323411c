"""A stored verdict, judged again from what it rests on."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from understudy import __version__
from understudy.core.amounts import says_the_same
from understudy.core.canary.analysis import judge
from understudy.core.canary.checks import evidence_from_json
from understudy.core.canary.decision import Check, CheckState, Decision, Evidence
from understudy.core.canary.limits import CanaryPolicy, Rules, Stage
from understudy.core.drift.beside_champion import beside_from_json
from understudy.core.windows.strata_codec import strata_from_text
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.entity_verdict import counts_of
from understudy.rollout.verdicts.shared_errors import were_told
from understudy.rollout.verdicts.slice_verdict import slice_counts_of
from understudy.rollout.verdicts.stored_judgements import judgements_in
from understudy.rollout.verdicts.stored_metrics import metrics_of
from understudy.rollout.verdicts.stored_outcomes import outcomes_of
from understudy.rollout.warm_up.warm_up_verdict import judged_scores, stored_scores


class Replay(NamedTuple):
    """What a stored verdict comes to today."""

    decision: Decision
    agrees: bool
    """Whether the verdict and what it rests on are the stored ones."""


class Damage(NamedTuple):
    """Why a stored event cannot be read, and so not be judged again."""

    problem: str


def judged_again(
    events: Iterable[RolloutEventRecord],
) -> list[tuple[RolloutEventRecord, Replay | Damage | None]]:
    """Judge each stored verdict again; one that is damaged says so and keeps no other from being shown."""
    return [(event, _judged_or_damaged(event)) for event in events]


def _judged_or_damaged(event: RolloutEventRecord) -> Replay | Damage | None:
    if event.damage:
        return Damage(event.damage)
    try:
        read_evidence(event)
        return replayed(event)
    except ValueError as problem:
        return Damage(str(problem))


def read_evidence(event: RolloutEventRecord) -> list[Evidence]:
    """Return the stored evidence that an event's verdict rests on.

    Raises:
        ValueError: It is not what was written.
    """
    try:
        rows = [evidence_from_json(row) for row in event.evidence]
    except (LookupError, TypeError, ValueError) as problem:
        raise ValueError(f"its evidence cannot be read: {type(problem).__name__}: {problem}") from problem
    for _, _, *figures in (row._replace(subject=None) for row in rows):
        if not all(figure is None or isinstance(figure, int | float) for figure in figures):
            raise ValueError("its evidence cannot be read: a figure is no number")
    return rows


def replayed(event: RolloutEventRecord) -> Replay | None:
    """Judge a stored verdict again; ``None`` for an event that holds none.

    Raises:
        ValueError: Its inputs cannot be read.
    """
    scores = stored_scores(event)
    if scores is None and (event.verdict is None or "strata" not in event.inputs):
        return None
    try:
        if scores is not None:
            decision = judged_scores(scores)
            return Replay(decision, _agrees_on_scores(decision, event, scores))
        decision = _judge(event.inputs, event.thresholds)
        return Replay(decision, _agrees(decision, event))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        # Whatever a hand may have written there: numbers of another shape, a text for a list, a name that is unknown.
        raise ValueError(f"it cannot be judged again: {type(problem).__name__}: {problem}") from problem


def _judge(inputs: Mapping[str, Any], thresholds: Mapping[str, Any]) -> Decision:
    stage = _stage_of(inputs["stage"])
    policy = CanaryPolicy.from_json(thresholds)
    return judge(
        strata_from_text(inputs["strata"]),
        policy,
        stage,
        inputs["now"],
        outcomes_of(inputs),
        metrics=metrics_of(inputs),
        judgements=judgements_in(inputs),
        entities=counts_of(inputs),
        slices=slice_counts_of(inputs),
        drift=[beside_from_json(document) for document in inputs.get("drift", ())],
        are_shared_errors_told=were_told(inputs),
    )


def _stage_of(stored: Mapping[str, Any]) -> Stage:
    stage = dict(stored)
    stage["starts"] = tuple(stage["starts"])
    stage["weights_percent"] = {int(key): weight for key, weight in stage["weights_percent"].items()}
    # Releases before named no rules, but how often evidence began anew, and at first not even that.
    restarted = stage.pop("restart_seconds", None) is not None
    stage.setdefault("rules", Rules.RESTARTS if restarted else Rules.STEPS)
    return Stage(**stage)


def _agrees(decision: Decision, event: RolloutEventRecord) -> bool:
    """Whether the verdict and the checks that decide are the stored ones; the same code also says the same."""
    stored = [evidence_from_json(row) for row in event.evidence]
    if decision.verdict is not event.verdict or _deciding(decision.evidence) != _deciding(stored):
        return False
    return event.code_version != __version__ or says_the_same(decision.sentence, str(event.inputs.get("decision")))


def _agrees_on_scores(decision: Decision, event: RolloutEventRecord, stored: Mapping[str, Any]) -> bool:
    if decision.verdict is not event.verdict:
        return False
    return event.code_version != __version__ or says_the_same(decision.reason, str(stored["words"]))


def _deciding(rows: Sequence[Evidence]) -> dict[Check, CheckState]:
    # What decides nothing has had other names in other versions: unproven was once a pass.
    deciding = (CheckState.WARMING, CheckState.SHARED, CheckState.FAIL, CheckState.INVALID)
    return {row.check: row.state for row in rows if row.state in deciding}
