"""Moved scores: looks once a minute how far the mean scores of open rollouts' challengers are from the champion's."""

import asyncio
from collections.abc import Collection

from understudy.core.canary.decision import Verdict
from understudy.core.canary.scores.moved_scores import move_words, score_move
from understudy.core.rollout.state import Kind, Phase
from understudy.core.windows.strata import Strata
from understudy.ports.rollout.rollout_store import NewRolloutEvent, RolloutView
from understudy.rollout.analysis import policy_of
from understudy.rollout.stored_move import Moved
from understudy.rollout.verdicts.verdict_event import stored_strata

LOOK_SECONDS = 60.0


class MovedScores:
    """Judges what a tick has read, of each rollout once a minute."""

    def __init__(self) -> None:
        self._next_at: dict[int, float] = {}
        """By rollout."""

    async def look(self, view: RolloutView, strata: Strata | None) -> Moved | None:
        """Return what says that a challenger's mean score has moved; ``None`` for every other.

        A plan with a limit of its own for the mean score is judged by that, and a guard by none: an operator chose who
        has its share.
        """
        state, now = view.record.state, view.read_at
        is_on_its_way = state.phase is Phase.PROGRESSING and state.promoted_at is None and bool(state.step_starts)
        if strata is None or state.kind is Kind.GUARD or not is_on_its_way:
            return None
        policy = policy_of(view)
        if policy.score_shift_limit is not None or now < self._next_at.get(view.record.id, 0.0):
            return None
        self._next_at[view.record.id] = now + LOOK_SECONDS
        closed, planned = strata.until(now - policy.watermark_seconds), len(state.plan.steps)
        words = move_words(await asyncio.to_thread(score_move, closed, state.step_starts, planned))
        return Moved(words, closed, state.step_starts, planned) if words else None

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Keep nothing of rollouts but these."""
        self._next_at = {known: self._next_at[known] for known in rollout_ids if known in self._next_at}


async def moved_event(actor: str, moved: Moved) -> NewRolloutEvent:
    """Return the event of a rollout that waits because its challenger's mean score has moved."""
    return NewRolloutEvent(actor, Verdict.HOLD, inputs=moved.inputs(await stored_strata(moved.strata)))
