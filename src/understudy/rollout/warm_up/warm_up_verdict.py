"""The verdict on a challenger's warm-up and on its scores: how it is decided, stored in an event, and judged again."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.scores.constant_scores import (
    LiveScores,
    constant_words,
    live_scores_from_json,
    live_scores_to_json,
)
from understudy.core.canary.scores.score_agreement import (
    Agreement,
    AgreementState,
    agreement_to_json,
    judge_agreement,
    pairs_from_json,
)
from understudy.core.rollout.state import RolloutState, WaitingFor, WarmUpResult
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutEventRecord
from understudy.rollout.stored_move import MOVED, moved_words_again

AGREEMENT = "agreement"
"""Where the event of a warm-up has what its verdict rests on."""
CONSTANT = "constant_scores"
"""Where that of a later one has it, of scores that are all the same."""
EXPECTED = "expect_different_scores"
"""Where the inputs of an operator's command say that different scores are expected."""


class WarmedUp(NamedTuple):
    """What the warm-up found."""

    calls: WarmUpResult
    agreement: Agreement | None = None
    """``None`` where the calls failed, or the versions have no scores to compare."""
    is_expected: bool = False
    """Whether the plan, or an operator since, expects scores that differ."""

    @property
    def differs(self) -> bool:
        """Whether the version's scores are too unlike the champion's."""
        return self.agreement is not None and self.agreement.state is AgreementState.DIFFERENT

    @property
    def result(self) -> WarmUpResult:
        """What the state machine decides on."""
        if self.agreement is None:
            return self.calls
        expected = "; that was expected" if self.differs and self.is_expected else ""
        return self.calls._replace(
            scores=f"{self.agreement.words}{expected}", scores_differ=self.differs and not self.is_expected
        )

    def holds(self, before: RolloutState, after: RolloutState) -> bool:
        """Whether its scores are why a rollout waits now that did not before."""
        return is_held_by_warm_up(before, after) and self.result.scores_differ

    def event(self, actor: str, before: RolloutState, after: RolloutState) -> NewRolloutEvent:
        """Return the event of the transition; with a verdict, and what it rests on, where scores were compared."""
        has_begun = len(after.step_starts) > len(before.step_starts)
        agreement = self.agreement
        if agreement is None or agreement.state is AgreementState.UNKNOWN:
            return NewRolloutEvent(actor)
        if not (has_begun or self.holds(before, after)):
            return NewRolloutEvent(actor)
        verdict = Verdict.ADVANCE if has_begun else Verdict.HOLD
        return NewRolloutEvent(
            actor, verdict, inputs={AGREEMENT: agreement_to_json(agreement, is_expected=self.is_expected)}
        )


def is_held_by_warm_up(before: RolloutState, after: RolloutState) -> bool:
    """Whether a rollout waits for its challenger's warm-up, or because of its scores, that did not before."""
    return after.waiting_for is WaitingFor.WARM_UP and before.waiting_for is None


def constant_event(actor: str, scores: LiveScores) -> NewRolloutEvent:
    """Return the event of a rollout that waits because its challenger gives every call the same score."""
    return NewRolloutEvent(actor, Verdict.HOLD, inputs={CONSTANT: live_scores_to_json(scores)})


def are_different_scores_expected(events: Sequence[RolloutEventRecord]) -> bool:
    """Whether an operator has let the rollout go on although its scores differ."""
    return any(event.inputs.get(EXPECTED) is True for event in events)


def agreement_of(event: RolloutEventRecord) -> Mapping[str, Any] | None:
    """Return what is stored of the scores that a verdict rests on; ``None`` for every other event."""
    found = event.inputs.get(AGREEMENT)
    return found if event.verdict is not None and isinstance(found, Mapping) else None


def held_by_scores(events: Sequence[RolloutEventRecord]) -> bool:
    """Whether a rollout that waits for its warm-up waits because of its scores: the last verdict says so."""
    last = next((event for event in reversed(events) if event.verdict is not None), None)
    if last is None or last.verdict is not Verdict.HOLD:
        return False
    return MOVED in last.inputs or stored_scores(last) is not None


def stored_scores(event: RolloutEventRecord) -> Mapping[str, Any] | None:
    """Return what a verdict on scores rests on, of the warm-up or later; ``None`` for every other event.

    ``None`` as well where that was too much to be stored.
    """
    found = event.inputs.get(MOVED, event.inputs.get(CONSTANT, agreement_of(event)))
    if MOVED in event.inputs and isinstance(found, Mapping) and "strata" not in found:
        return None
    return found if event.verdict is not None and isinstance(found, Mapping) else None


def judged_scores(stored: Mapping[str, Any]) -> Decision:
    """Judge stored scores again.

    Raises:
        LookupError, TypeError, ValueError: They cannot be read.
    """
    if "pairs" not in stored:
        is_mean = "step_starts" in stored
        words = moved_words_again(stored) if is_mean else constant_words(live_scores_from_json(stored))
        return Decision(Verdict.HOLD if words else Verdict.ADVANCE, words)
    again = judge_agreement(pairs_from_json(stored))
    waits = again.state is AgreementState.DIFFERENT and not stored["is_expected"]
    return Decision(Verdict.HOLD if waits else Verdict.ADVANCE, again.words)
