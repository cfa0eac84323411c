"""Entities of open rollouts: each stretch is counted once, in turns, and a log that is away keeps no other back."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import pytest
from virtual_time import run_in_virtual_time

from understudy.core.canary.entities.entity_tally import UNIT_SECONDS, Before, EntityCalls
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import new_rollout_state
from understudy.errors import RegistryUnavailable
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.prediction_log.prediction_history import EntityHistory, TrialAsked
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutStore, RolloutView
from understudy.rollout.checks.entity_check import MAX_READ, READ_SECONDS, READ_UNITS, SHIPPED_SECONDS, EntityCheck

EPOCH = cast("Epoch", None)
NAMED_7 = RolloutEventRecord(1, 0.0, 0, "WAITING", None, "", (), {"named_entities": [7]}, {}, "1", "monitor")


class OpenRollouts:
    """Rollouts whose first step began at 0."""

    def __init__(self, *rollout_ids: int, stretches: int = 4) -> None:
        self.rollout_ids = list(rollout_ids)
        self.now = stretches * UNIT_SECONDS + SHIPPED_SECONDS
        self.events_of: list[RolloutEventRecord] = []

    async def open_ids(self) -> Sequence[int]:
        return self.rollout_ids

    async def events(self, _: int) -> Sequence[RolloutEventRecord]:
        return self.events_of

    async def view(self, rollout_id: int) -> RolloutView:
        policy = PolicySeen("6", "7", 2, 4, rollout_id)
        begun = new_rollout_state(rollout_id, "churn", NAMED_PLANS["default"], policy._replace(weight_percent=0), 0.0)
        state = replace(begun, step_starts=(0.0,), policy=policy)
        record = RolloutRecord(rollout_id, state, 1, 1, 2, "salt", 9_000, None, "dana", None, None)
        return RolloutView(record, policy, {4: 2}, 1, 1, {}, self.now)


class Log:
    """Has a call of ``acme`` that failed in each stretch, beside one of another that did not."""

    def __init__(self, *, seconds: float = 0.0, away: Sequence[int] = (), others: int = 1) -> None:
        self.asked: list[TrialAsked] = []
        self._seconds = seconds
        self._away = away
        self._others = others

    async def entity_calls(
        self, trial: TrialAsked, unit_seconds: int, at_most: int
    ) -> Mapping[int, Sequence[EntityCalls]]:
        await asyncio.sleep(self._seconds)
        if trial.rollout_id in self._away:
            raise RegistryUnavailable
        self.asked.append(trial)
        rows = [
            (start, one)
            for start in range(int(trial.since), int(trial.until), unit_seconds)
            for one in (
                EntityCalls("acme", 1, 1, 1, 1, ((7, start),)),
                *(EntityCalls(str(place), 1, 0, 1, 0) for place in range(self._others)),
            )
        ][:at_most]
        return {start: [one for at, one in rows if at == start] for start in {at for at, _ in rows}}

    async def entities_before(self, *_: object) -> Mapping[str, Before]:
        return {"acme": Before(9, 0)}


def a_check(store: OpenRollouts, log: Log) -> EntityCheck:
    return EntityCheck(cast("RolloutStore", store), cast("EntityHistory", log))


def failed(check: EntityCheck, rollout_id: int = 1) -> list[int]:
    found = check.latest(rollout_id)
    return [] if found is None else [one.failed for one in found.worst]


async def test_each_stretch_is_read_once_when_its_rows_are_in():
    store, log = OpenRollouts(1), Log()
    check = a_check(store, log)

    await check.tick(EPOCH)
    store.now += UNIT_SECONDS - 1
    await check.tick(EPOCH)
    before = failed(check)
    store.now += 1
    await check.tick(EPOCH)

    assert (before, failed(check)) == ([4], [5])
    spans = [(one.since / UNIT_SECONDS, one.until / UNIT_SECONDS) for one in log.asked]
    assert spans == [(0, 4), (4, 5)]
    latest = check.latest(1)
    assert latest is not None
    assert (latest.worst[0].before_calls, latest.worst[0].before_failed) == (9, 0)


@pytest.mark.deep
def test_a_stretch_of_which_the_answer_has_a_part_is_asked_for_again():
    check = a_check(OpenRollouts(1, stretches=READ_UNITS), log := Log(others=MAX_READ * 2 // 5))

    run_in_virtual_time(check.tick(EPOCH))  # counting so many must not use up the time of a tick

    assert failed(check) == [READ_UNITS]
    assert [one.since for one in log.asked] == [0, 2 * UNIT_SECONDS, 4 * UNIT_SECONDS]


def test_a_slow_log_has_rollouts_take_turns():
    async def ticks() -> list[int]:
        check = a_check(OpenRollouts(1, 2, 3), log := Log(seconds=READ_SECONDS))
        for _ in range(3):
            await check.tick(EPOCH)
        return [one.rollout_id for one in log.asked]

    assert run_in_virtual_time(ticks()) == [1, 2, 3]


async def test_a_rollout_that_cannot_be_read_keeps_no_other_from_its_turn():
    check = a_check(OpenRollouts(1, 2), Log(away=[1]))

    with pytest.raises(RegistryUnavailable):
        await check.tick(EPOCH)

    assert check.latest(1) is None
    assert failed(check, 2) == [4]


async def test_what_an_operator_was_told_by_an_earlier_monitor_is_not_named():
    store = OpenRollouts(1)
    store.events_of = [NAMED_7]
    check = a_check(store, Log())

    await check.tick(EPOCH)

    assert failed(check) == []


async def test_a_rollout_that_is_over_is_forgotten():
    store = OpenRollouts(1)
    check = a_check(store, Log())
    await check.tick(EPOCH)
    check.told(1, [7])
    told = failed(check)
    store.rollout_ids = []
    await check.tick(EPOCH)

    assert told == []
    assert check.latest(1) is None
