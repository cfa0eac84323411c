"""Constant scores: looks once a minute whether the challengers of open rollouts give every call the same score."""

import asyncio
from collections.abc import Collection

from understudy.core.canary.scores.constant_scores import LiveScores, constant_words, live_scores, varies
from understudy.core.rollout.state import Kind, Phase
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import RolloutView

LOOK_SECONDS = 60.0
PAST_SECONDS = 600.0
"""The windows of one look: a score that becomes constant after days is found in as long."""


class ConstantScores:
    """Reads the last minutes of a rollout: every minute until two scores differ, and then every ten.

    Args:
        windows: What the versions did.
    """

    def __init__(self, windows: WindowLog) -> None:
        self._windows = windows
        self._next_at: dict[int, float] = {}
        """By rollout."""

    async def look(self, view: RolloutView) -> LiveScores | None:
        """Return the scores of a challenger that gives every call the same; ``None`` for every other.

        Raises:
            RegistryUnavailable, MigrationNeeded: As the windows.
        """
        state, now = view.record.state, view.read_at
        is_on_its_way = state.phase is Phase.PROGRESSING and state.promoted_at is None and bool(state.step_starts)
        if state.kind is Kind.GUARD or not is_on_its_way or now < self._next_at.get(view.record.id, 0.0):
            return None
        windows = await self._windows.of_rollout(view.record.id, now - PAST_SECONDS)
        scores = await asyncio.to_thread(live_scores, windows, view.record.id)
        self._next_at[view.record.id] = now + (PAST_SECONDS if varies(scores) else LOOK_SECONDS)
        return scores if constant_words(scores) else None

    def forget_others(self, rollout_ids: Collection[int]) -> None:
        """Keep nothing of rollouts but these."""
        self._next_at = {known: self._next_at[known] for known in rollout_ids if known in self._next_at}
