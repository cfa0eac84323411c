"""How often the scores of open rollouts are looked at, and of which rollouts."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from math import inf

import numpy as np
import pytest

from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Kind, Phase, new_rollout_state
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import BucketColumn, Window, WindowKey, no_buckets
from understudy.ports.monitoring.window_log import LatestWindows, Marks
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.checks.constant_scores import LOOK_SECONDS, PAST_SECONDS, ConstantScores

POLICY = PolicySeen("6", "7", 0, 3, 1)
STATE = replace(new_rollout_state(1, "churn", NAMED_PLANS["default"], POLICY, 100.0), step_starts=(100.0,))


class Windows:
    """The windows of one rollout, and from when on each look asked for them."""

    def __init__(self, challenger: float) -> None:
        self.scores = {Role.CHAMPION: np.linspace(0, 1, 200), Role.CHALLENGER: np.linspace(0.42, challenger, 20)}
        self.asked: list[float] = []

    async def of_rollout(self, rollout_id: int, since: float = 0.0, until: float = inf) -> Sequence[Window]:
        self.asked.append(since)
        buckets = no_buckets()
        buckets[:20, BucketColumn.SCORE_CALLS] = 1
        keys = {role: WindowKey("a", 0, 1, role, rollout_id, 1, 0) for role in self.scores}
        return [
            Window(keys[role], scores=Histogram.of(scores.tolist()), buckets=buckets)
            for role, scores in self.scores.items()
        ]

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def slices_of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        raise NotImplementedError

    async def marks_of_rollout(self, rollout_id: int, since: int, until: int) -> Marks:
        raise NotImplementedError

    async def latest_of_rollout(self, rollout_id: int, since: int, settled: int) -> LatestWindows:
        raise NotImplementedError

    async def of_versions(self, version_ids: Sequence[int], since: float, until: float) -> Sequence[Window]:
        raise NotImplementedError

    async def forget(self, before: float, at_most: int) -> int:
        raise NotImplementedError


def a_view(now: float, **changes: object) -> RolloutView:
    state = replace(STATE, **changes)  # type: ignore[arg-type]
    record = RolloutRecord(1, state, 3, 1, 2, "salt", 9_000, None, "dana", None, None)
    return RolloutView(record, POLICY, {}, 2, 2, {}, now)


async def looks(windows: Windows, seconds: int, **changes: object) -> list[float]:
    """Return when windows were read, of a look at every 5 s."""
    constant = ConstantScores(windows)
    for now in range(1_000, 1_000 + seconds, 5):
        await constant.look(a_view(float(now), **changes))
    return [since + PAST_SECONDS - 1_000 for since in windows.asked]


async def test_scores_that_are_all_the_same_are_found_and_asked_for_every_minute():
    assert await ConstantScores(Windows(0.42)).look(a_view(1_000.0)) is not None
    assert await looks(Windows(0.42), 185) == [0, LOOK_SECONDS, 2 * LOOK_SECONDS, 3 * LOOK_SECONDS]


async def test_scores_that_differ_are_asked_for_again_after_ten_minutes():
    assert await ConstantScores(Windows(0.9)).look(a_view(1_000.0)) is None
    assert await looks(Windows(0.9), 605) == [0, PAST_SECONDS]


@pytest.mark.parametrize(
    "changes",
    [{"kind": Kind.GUARD}, {"phase": Phase.WAITING}, {"step_starts": ()}, {"promoted_at": 900.0}],
    ids=["guard", "waiting", "warming up", "promoted"],
)
async def test_only_a_rollout_on_its_way_is_looked_at(changes):
    assert await looks(Windows(0.42), 120, **changes) == []


async def test_a_rollout_that_is_over_is_forgotten():
    windows = Windows(0.9)
    constant = ConstantScores(windows)
    await constant.look(a_view(1_000.0))
    constant.forget_others([2])

    await constant.look(a_view(1_005.0))

    assert len(windows.asked) == 2
