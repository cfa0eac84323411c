"""Slices of open rollouts: each stretch is added once, in turns, and windows that are away keep no other back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from math import ceil
from typing import cast

import numpy as np
import pytest

from understudy.core.canary.slices.failing_slices import UNIT_SECONDS, failing_slices
from understudy.core.prediction_log.call_slices import Slice
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.routing.policy import Role
from understudy.core.windows.window import MICRO, Window, WindowKey
from understudy.errors import RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.rollout.rollout_store import RecordSeen, RolloutEventRecord, RolloutRecord, RolloutStore
from understudy.rollout.checks.slice_check import READ_UNITS, SHIPPED_SECONDS, TURNS, SliceCheck

EPOCH = cast("Epoch", None)
GOLD = Slice("category", "gold")
NAMED = RolloutEventRecord(1, 0.0, 0, "WAITING", None, "", (), {"named_slices": ["category=gold"]}, {}, "1", "monitor")


class OpenRollouts:
    """Rollouts whose first step began at 0."""

    def __init__(self, *rollout_ids: int, stretches: int = 4, slices: str = "hold") -> None:
        self.rollout_ids = list(rollout_ids)
        self.now = stretches * UNIT_SECONDS + SHIPPED_SECONDS
        self.events_of: list[RolloutEventRecord] = []
        self._plan = replace(NAMED_PLANS["default"], canary_limits={"slices": slices})

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        yield

    async def open_ids(self) -> Sequence[int]:
        return self.rollout_ids

    async def events(self, _: int) -> Sequence[RolloutEventRecord]:
        return self.events_of

    async def record(self, rollout_id: int) -> RecordSeen:
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        begun = new_rollout_state(rollout_id, "churn", self._plan, policy._replace(weight_percent=0), 0.0)
        state = replace(begun, step_starts=(0.0,), policy=policy)
        record = RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
        return RecordSeen(record, self.now)


class Windows:
    """Has, in each stretch, calls of a category that the challenger fails, and of which the champion fails none."""

    def __init__(self, *, away: Sequence[int] = ()) -> None:
        self.asked: list[tuple[int, float, float]] = []
        self._away = away

    @asynccontextmanager
    async def shared_session(self) -> AsyncIterator[None]:
        yield

    async def slices_of_rollout(self, rollout_id: int, since: float, until: float) -> Sequence[Window]:
        if rollout_id in self._away:
            raise RegistryUnavailable
        self.asked.append((rollout_id, since / UNIT_SECONDS, until / UNIT_SECONDS))
        return [
            self._window(rollout_id, role, start)
            for start in range(int(since), int(until), UNIT_SECONDS)
            for role in (Role.CHAMPION, Role.CHALLENGER)
        ]

    def _window(self, rollout_id: int, role: Role, start: int) -> Window:
        calls, errors = (20, 0) if role is Role.CHAMPION else (2, 2)
        counts = np.tile(np.array([calls, errors, 0, (calls - errors) * 9 * MICRO]), (16, 1))
        key = WindowKey("worker-1", 0, 1, role, rollout_id, 4, start)
        # Ten times as many calls have no category, and fail nowhere.
        return Window(
            key, calls=176 * calls, errors=16 * errors, log_latency=170 * calls * 9 * MICRO, slices={GOLD: counts}
        )


def a_check(store: OpenRollouts, windows: Windows) -> SliceCheck:
    return SliceCheck(cast("RolloutStore", store), cast("WindowLog", windows))


def named(check: SliceCheck, rollout_id: int = 1) -> list[str]:
    latest = check.latest(rollout_id)
    return [] if latest is None else [str(found.counted.slice) for found in failing_slices(latest)]


async def test_each_stretch_is_added_once_when_its_windows_are_in():
    store, windows = OpenRollouts(1), Windows()
    check = a_check(store, windows)

    await check.tick(EPOCH)
    store.now += UNIT_SECONDS - 1
    await check.tick(EPOCH)
    store.now += 1
    await check.tick(EPOCH)

    assert windows.asked == [(1, 0, 4), (1, 4, 5)]
    assert named(check) == ["category=gold"]


async def test_a_long_past_is_read_piece_by_piece():
    check = a_check(OpenRollouts(1, stretches=2 * READ_UNITS + 1), windows := Windows())

    await check.tick(EPOCH)

    assert [asked[1:] for asked in windows.asked] == [(0, 15), (15, 30), (30, 31)]


async def test_slow_windows_have_rollouts_take_turns():
    store, windows = OpenRollouts(*range(1, 3 * TURNS + 1)), Windows()
    check = SliceCheck(cast("RolloutStore", store), cast("WindowLog", windows), read_seconds=0.0)

    for _ in range(3):
        await check.tick(EPOCH)

    assert [asked[0] for asked in windows.asked] == [1, 2, 3]


@pytest.mark.parametrize("count", [1, TURNS, 2 * TURNS + 1])
async def test_each_rollout_has_a_turn_within_a_minute_and_no_tick_has_more_than_its_share(count):
    check = a_check(OpenRollouts(*range(1, count + 1)), windows := Windows())
    in_tick = []

    for _ in range(TURNS):
        before = len(windows.asked)
        await check.tick(EPOCH)
        in_tick.append(len(windows.asked) - before)

    assert [asked[0] for asked in windows.asked] == list(range(1, count + 1))
    assert max(in_tick) == ceil(count / TURNS)


async def test_a_rollout_whose_windows_cannot_be_read_keeps_no_other_from_its_turn():
    check = a_check(OpenRollouts(*range(1, TURNS + 2)), Windows(away=[1]))

    with pytest.raises(RegistryUnavailable):
        await check.tick(EPOCH)

    assert check.latest(1) is None
    assert named(check, 2) == ["category=gold"]


async def test_what_an_operator_was_told_by_an_earlier_monitor_or_by_this_one_is_not_named():
    store = OpenRollouts(1, 2)
    store.events_of = [NAMED]
    earlier = a_check(store, Windows())
    check = a_check(OpenRollouts(1), Windows())

    await earlier.tick(EPOCH)
    await check.tick(EPOCH)
    check.told(1, ["category=gold"])

    assert named(earlier) == named(check) == []


async def test_a_plan_that_judges_no_slices_reads_no_windows():
    check = a_check(OpenRollouts(1, slices="off"), windows := Windows())

    await check.tick(EPOCH)

    assert windows.asked == []
    assert check.latest(1) is None


async def test_a_rollout_that_is_over_is_forgotten():
    store = OpenRollouts(1)
    check = a_check(store, Windows())
    await check.tick(EPOCH)
    store.rollout_ids = []
    await check.tick(EPOCH)

    assert check.latest(1) is None
