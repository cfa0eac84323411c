"""What events say of single entities, whatever was written there."""

from dataclasses import replace
from typing import Any

import pytest

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.entities.worst_entities import EntityCount, EntityCounts, FailingEntity
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase, WaitingFor, new_rollout_state
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.entity_verdict import counts_of, failing_counts, named_keys, stored_entities, told_of

COUNT = EntityCount(((7, 17),), 27, 27, (*(0,) * 20, 9), 120, 0)
COUNTS = EntityCounts(300, 2_000, 12.0, (COUNT,))
STATE = new_rollout_state(1, "churn", NAMED_PLANS["default"], PolicySeen("6", "7", 0, 3, 1), 0.0)
HELD = Decision(Verdict.HOLD, "1 entity fails", entities=(FailingEntity(COUNT, 0.005, 20.0),))


def event(inputs: Any, phase: str = "WAITING", verdict: Verdict | None = Verdict.HOLD) -> RolloutEventRecord:
    return RolloutEventRecord(1, 0.0, 0, phase, verdict, "said", (), inputs, {}, "1", "monitor")


def test_what_a_verdict_stores_comes_back_with_the_entities_that_it_named():
    inputs = stored_entities(COUNTS, [7])

    assert counts_of(inputs) == COUNTS
    assert failing_counts([event(inputs)]) == [COUNT]
    assert told_of([event(inputs)]) == {7}


def test_only_a_rollout_that_waits_because_of_entities_names_them():
    at_once = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.TIME)
    in_conflict = replace(at_once, waiting_for=WaitingFor.CONFLICT)

    assert named_keys(HELD, at_once) == [7]
    assert named_keys(HELD, in_conflict) == ()
    assert named_keys(None, at_once) == ()


def test_a_verdict_stores_nothing_where_no_entity_fails():
    assert stored_entities(None, ()) == {}
    assert stored_entities(EntityCounts(300, 2_000, 0.0), ()) == {}
    assert counts_of({}) is None


def test_a_later_verdict_or_one_that_waits_for_nothing_names_none():
    inputs = stored_entities(COUNTS, [7])

    assert failing_counts([event(inputs), event({})]) == ()
    assert failing_counts([event(inputs, phase="PROGRESSING")]) == ()
    assert told_of([event(inputs, phase="PROGRESSING")]) == set()
    assert failing_counts([]) == ()


@pytest.mark.parametrize("damage", [{"entities": 3}, {"named_entities": 3}, {"named_entities": "acme"}])
def test_damaged_inputs_name_none(damage):
    inputs = {**stored_entities(COUNTS, [7]), **damage}

    assert failing_counts([event(inputs)]) == ()
