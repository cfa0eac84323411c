"""What events say of slices, whatever was written there."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.slices.failing_slices import FailingSlice, SliceCheck, SliceCount, SliceCounts
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import NAMED_PLANS
from understudy.core.rollout.state import Phase, WaitingFor, new_rollout_state
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.verdicts.slice_verdict import (
    named_slices,
    slice_counts_of,
    stored_slices,
    told_slices,
    worse_counts,
)

FIGURES = ((2_700.0, 24_300.0), (54.0, 580.0))
COUNT = SliceCount("category", "gold", SliceCheck.LATENCY, 60.0, 0.1, *FIGURES, 9, 9, (1.0,) * 16)
COUNTS = SliceCounts(8, (COUNT,))
STATE = new_rollout_state(1, "churn", NAMED_PLANS["default"], PolicySeen("6", "7", 0, 3, 1), 0.0)
HELD = Decision(Verdict.HOLD, "category=gold: slower", slices=(FailingSlice(COUNT, 20.0),))


def event(inputs: Any, phase: str = "WAITING", verdict: Verdict | None = Verdict.HOLD) -> RolloutEventRecord:
    read = orjson.loads(orjson.dumps(inputs))
    return RolloutEventRecord(1, 0.0, 0, phase, verdict, "said", (), read, {}, "1", "monitor")


def test_what_a_verdict_stores_comes_back_with_the_slices_that_it_named():
    inputs = stored_slices(COUNTS, ["category=gold"])

    assert slice_counts_of(orjson.loads(orjson.dumps(inputs))) == COUNTS
    assert worse_counts([event(inputs)]) == [COUNT]
    assert told_slices([event(inputs)]) == {"category=gold"}


def test_only_a_rollout_that_waits_because_of_slices_names_them():
    at_once = replace(STATE, phase=Phase.WAITING, waiting_for=WaitingFor.TIME)
    in_conflict = replace(at_once, waiting_for=WaitingFor.CONFLICT)

    assert named_slices(HELD, at_once) == ["category=gold"]
    assert named_slices(HELD, in_conflict) == ()
    assert named_slices(None, at_once) == ()


def test_a_verdict_stores_nothing_where_no_slice_does_worse():
    assert stored_slices(None, ()) == {}
    assert stored_slices(SliceCounts(8), ()) == {}
    assert slice_counts_of({}) is None


def test_a_later_verdict_or_one_that_waits_for_nothing_names_none():
    inputs = stored_slices(COUNTS, ["category=gold"])

    assert list(worse_counts([event(inputs), event({})])) == []
    assert list(worse_counts([event(inputs, phase="PROGRESSING")])) == []
    assert told_slices([event(inputs, phase="PROGRESSING")]) == set()
    assert list(worse_counts([])) == []


@pytest.mark.parametrize(
    "damage", [{"slices": 3}, {"named_slices": 3}, {"named_slices": "gold"}, {"slices": {"seen": 1}}]
)
def test_damaged_inputs_name_none(damage):
    inputs = {**stored_slices(COUNTS, ["category=gold"]), **damage}

    assert list(worse_counts([event(inputs)])) == []
