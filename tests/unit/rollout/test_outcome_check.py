"""Outcomes of open rollouts: whoever cannot be asked, or takes too long, keeps no other from its measurement."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.ports.rollout_store import RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.outcome_check import OutcomeCheck

PLAN = replace(NAMED_PLANS["default"], canary_limits={"outcome": "converted"})
TICK_SECONDS = 10.0


def a_difference() -> Difference:
    arm = ArmEntities(np.arange(200.0) % 2, np.ones(200))
    found = compare(arm, arm)
    assert found is not None
    return found


FOUND = a_difference()._replace(with_outcome_ratio=0.38)


class OpenRollouts:
    """Rollouts that have begun to get traffic; one of those in ``gone`` cannot be read."""

    def __init__(self, rollout_ids: Sequence[int], gone: Sequence[int] = ()) -> None:
        self.rollout_ids = list(rollout_ids)
        self._gone = gone

    async def open_ids(self) -> Sequence[int]:
        return self.rollout_ids

    async def view(self, rollout_id: int) -> RolloutView:
        if rollout_id in self._gone:
            raise NotRegistered("there is no such rollout")
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        begun = new_rollout_state(rollout_id, "churn", PLAN, policy._replace(weight_percent=0), 0.0)
        state = replace(begun, step_starts=(0.0,), policy=policy)
        record = RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
        return RolloutView(record, policy, {4: 2}, 1, 1, {}, 60.0)


class Outcomes:
    """Answers after as many seconds as a rollout takes; ``None`` stands for a Postgres that is away."""

    def __init__(self, seconds: dict[int, float | None]) -> None:
        self.seconds = seconds

    async def measure(self, view: RolloutView) -> Difference | None:
        seconds = self.seconds[view.record.id]
        if seconds is None:
            raise RegistryUnavailable
        await asyncio.sleep(seconds)
        return FOUND


def a_guard(store: OpenRollouts, outcomes: Outcomes) -> OutcomeCheck:
    return OutcomeCheck(cast("RolloutStore", store), outcomes.measure)


async def ticks(guard: OutcomeCheck, count: int) -> None:
    """Let the monitor's job run, which is broken off when its time is over."""
    for _ in range(count):
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await guard.tick(1)
        except TimeoutError:
            pass


def test_what_was_measured_before_the_time_was_over_is_kept_and_the_rest_comes_first_next_time():
    guard = a_guard(OpenRollouts([1, 2, 3]), Outcomes({1: 4.0, 2: 4.0, 3: 4.0}))

    run_in_virtual_time(ticks(guard, 1))
    after_one = [guard.latest(number) for number in (1, 2, 3)]
    run_in_virtual_time(ticks(guard, 1))

    assert after_one == [FOUND, FOUND, None]
    assert guard.latest(3) == FOUND


def test_a_rollout_that_takes_the_whole_time_keeps_no_other_from_its_turn():
    guard = a_guard(OpenRollouts([1, 2]), Outcomes({1: 60.0, 2: 1.0}))

    run_in_virtual_time(ticks(guard, 2))

    assert guard.latest(1) is None
    assert guard.latest(2) == FOUND


async def test_one_that_cannot_be_read_is_told_once_all_others_are_measured():
    guard = a_guard(OpenRollouts([1, 2], gone=[1]), Outcomes({2: 0.0}))

    with pytest.raises(NotRegistered):
        await guard.tick(1)

    assert guard.latest(2) == FOUND


async def test_who_cannot_be_measured_now_keeps_the_measurement_before_until_the_rollout_is_over():
    store, outcomes = OpenRollouts([1]), Outcomes({1: 0.0})
    guard = a_guard(store, outcomes)
    await guard.tick(1)
    outcomes.seconds[1] = None

    with pytest.raises(RegistryUnavailable):
        await guard.tick(1)
    kept = guard.latest(1)
    store.rollout_ids.clear()
    await guard.tick(1)

    assert kept == FOUND
    assert guard.latest(1) is None


async def test_the_share_of_entities_with_an_outcome_is_a_gauge_that_goes_with_its_rollout():
    store, telemetry = OpenRollouts([1]), MemoryTelemetry()
    guard = OutcomeCheck(cast("RolloutStore", store), Outcomes({1: 0.0}).measure, telemetry)

    await guard.tick(1)
    shown = dict(telemetry.gauges)
    store.rollout_ids.clear()
    await guard.tick(1)

    assert shown == {("outcome_join_ratio", "churn"): 0.38}
    assert telemetry.gauges == {}
