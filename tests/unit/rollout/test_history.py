"""A history that is read by pieces is the one of all windows at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.adapters.memory.prediction_log import MemoryPredictionStore
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.windows.window import Window
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.history import PIECE_SECONDS, history_of, read_history
from understudy.rollout.window_cache import EARLY_SECONDS

HOURS = 2
PLAN = replace(NAMED_PLANS["default"], canary_policy="seed")
"""Without decisions, which are dear: they rest on the same counts."""
BEGAN = float(EARLY_SECONDS)
NOW = BEGAN + HOURS * 3_600
POLICY = PolicySeen("6", "7", 20, 4, 1)


class Counting(MemoryPredictionStore):
    """The twin, which also tells how many windows were read at a time."""

    def __init__(self, windows: Sequence[Window]) -> None:
        super().__init__()
        self.windows.update((window.key, window) for window in windows)
        self.read: list[int] = []

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = float("inf")) -> Sequence[Window]:
        found = await super().of_rollout(rollout_id, since, until)
        self.read.append(len(found))
        return found


class NoEvents:
    async def events(self, rollout_id: int) -> Sequence[RolloutEventRecord]:
        return ()


def a_view(finished_at: float | None = None) -> RolloutView:
    state = new_rollout_state(1, "churn", PLAN, POLICY._replace(weight_percent=0), BEGAN)
    state = replace(state, step_starts=(BEGAN,), policy=POLICY)
    record = RolloutRecord(ROLLOUT, state, 3, 1, 2, "salt", 9_000, None, "dana", None, finished_at)
    return RolloutView(record, POLICY, {}, 2, 2, {}, NOW)


@pytest.mark.deep
async def test_it_is_the_one_of_all_windows_and_few_are_held_at_a_time():
    world = World("any", requests_per_minute=60, has_scores=True, has_histograms=True)
    made = Traffic(world, 1).windows(0, HOURS * 60 * PER_MINUTE, 20.0)
    windows = [replace(one, key=one.key._replace(start=one.key.start + int(BEGAN))) for one in made]
    log = Counting(windows)

    read = await read_history(cast("RolloutStore", NoEvents()), log, a_view())

    assert read == history_of(a_view(), windows, ())
    assert read.requests[0] > 0
    assert read.scores is not None
    assert max(log.read) <= len(windows) * PIECE_SECONDS / (HOURS * 3_600)
