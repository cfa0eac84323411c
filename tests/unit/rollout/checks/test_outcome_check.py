"""Outcomes of open rollouts: whoever cannot be asked, or takes too long, keeps no other from its measurement."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from virtual_time import run_in_virtual_time

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS, RolloutPlan
from understudy.core.rollout.state import new_rollout_state
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.errors import NotRegistered, RegistryUnavailable
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.checks.outcome_check import OutcomeCheck

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

    def __init__(self, rollout_ids: Sequence[int], gone: Sequence[int] = (), plan: RolloutPlan = PLAN) -> None:
        self.rollout_ids = list(rollout_ids)
        self._plan = plan
        self._gone = gone

    async def open_ids(self) -> Sequence[int]:
        return self.rollout_ids

    async def view(self, rollout_id: int) -> RolloutView:
        if rollout_id in self._gone:
            raise NotRegistered("there is no such rollout")
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        begun = new_rollout_state(rollout_id, "churn", self._plan, policy._replace(weight_percent=0), 0.0)
        state = replace(begun, step_starts=(0.0,), policy=policy)
        record = RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
        return RolloutView(record, policy, {4: 2}, 1, 1, {}, 60.0)


class Outcomes:
    """Answers after as many seconds as a rollout takes; ``None`` stands for a Postgres that is away."""

    def __init__(self, seconds: dict[int, float | None]) -> None:
        self.seconds = seconds

    async def measure(self, view: RolloutView, limit: OutcomeLimit) -> Difference | None:
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

    assert after_one == [(FOUND,), (FOUND,), (None,)]
    assert guard.latest(3) == (FOUND,)


def test_a_rollout_that_takes_the_whole_time_keeps_no_other_from_its_turn():
    guard = a_guard(OpenRollouts([1, 2]), Outcomes({1: 60.0, 2: 1.0}))

    run_in_virtual_time(ticks(guard, 2))

    assert guard.latest(1) == (None,)
    assert guard.latest(2) == (FOUND,)


async def test_one_that_cannot_be_read_is_told_once_all_others_are_measured():
    guard = a_guard(OpenRollouts([1, 2], gone=[1]), Outcomes({2: 0.0}))

    with pytest.raises(NotRegistered):
        await guard.tick(1)

    assert guard.latest(2) == (FOUND,)


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

    assert kept == (FOUND,)
    assert guard.latest(1) == ()


async def test_the_share_of_entities_with_an_outcome_is_a_gauge_that_goes_with_its_rollout():
    store, telemetry = OpenRollouts([1]), MemoryTelemetry()
    guard = OutcomeCheck(cast("RolloutStore", store), Outcomes({1: 0.0}).measure, telemetry)

    await guard.tick(1)
    shown = dict(telemetry.gauges)
    store.rollout_ids.clear()
    await guard.tick(1)

    assert shown == {("outcome_join_ratio", "churn"): 0.38}
    assert telemetry.gauges == {}


class SeveralOutcomes:
    """Answers by name; one in ``slow`` takes longer than a tick."""

    def __init__(self, ratios: dict[str, float], slow: str = "") -> None:
        self._ratios = ratios
        self._slow = slow

    async def measure(self, _view: RolloutView, limit: OutcomeLimit) -> Difference | None:
        if limit.name == self._slow:
            await asyncio.sleep(60.0)
        return FOUND._replace(with_outcome_ratio=self._ratios[limit.name])


def several(*names: str) -> OpenRollouts:
    plan = replace(PLAN, canary_limits={"outcomes": [{"name": name} for name in names]})
    return OpenRollouts([1], plan=plan)


async def test_each_outcome_of_a_plan_is_measured_in_its_order_and_the_gauge_has_the_smallest_share():
    telemetry = MemoryTelemetry()
    outcomes = SeveralOutcomes({"converted": 0.9, "refunds": 0.2})
    guard = OutcomeCheck(cast("RolloutStore", several("converted", "refunds")), outcomes.measure, telemetry)

    await guard.tick(1)

    assert [one and one.with_outcome_ratio for one in guard.latest(1)] == [0.9, 0.2]
    assert telemetry.gauges == {("outcome_join_ratio", "churn"): 0.2}


def test_an_outcome_that_takes_the_whole_time_keeps_no_other_of_the_plan_from_its_turn():
    outcomes = SeveralOutcomes({"a": 0.1, "b": 0.2, "c": 0.3}, slow="b")
    guard = OutcomeCheck(cast("RolloutStore", several("a", "b", "c")), outcomes.measure)

    run_in_virtual_time(ticks(guard, 2))

    assert [one and one.with_outcome_ratio for one in guard.latest(1)] == [0.1, None, 0.3]
