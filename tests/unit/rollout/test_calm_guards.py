"""Which guards have a turn in a tick."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.ports.rollout.rollout_store import RolloutRecord, RolloutView
from understudy.rollout.calm_guards import CALM_SECONDS, CalmGuards, Turn

TICK_SECONDS = 5.0
START = 1_000_000.0
PLAN = RolloutPlan((Step(10, 0, 0), Step(100, 0, 0)))
FINE = Decision(Verdict.HOLD, "nothing got worse")
BAD = Decision(Verdict.ROLL_BACK, "error rate 3.1x")
UNEVEN = Decision(Verdict.INVALID, "sample ratio")
OLD = START + CALM_SECONDS


def a_guard(
    guard_id: int = 1, now: float = OLD, *, slow_us: int | None = 20_000, generation: int = 4, **changed: Any
) -> RolloutView:
    policy = PolicySeen("1", "2", 10, generation, guard_id)
    split = RolloutState(guard_id, "visits", "1", "2", PLAN, policy, START, START, kind=Kind.GUARD)
    state = replace(split, **{"step_starts": (START,), **changed})
    record = RolloutRecord(guard_id, state, 1, 1, 2, "salt", slow_us, None, "dana", None, None)
    return RolloutView(record, policy, {generation: 10}, 1, 1, {}, now)


def calm(count: int) -> CalmGuards:
    guards = CalmGuards(TICK_SECONDS)
    guards.turns(range(count), range(count))
    for known in range(count):
        guards.analysed(a_guard(known), FINE, is_worse=False)
    return guards


def look(guards: CalmGuards, count: int) -> Counter[tuple[int, Turn]]:
    """Have a tick whose glances find nothing, and return who had which turn."""
    turns = guards.turns(range(count), range(count))
    for known, turn in turns.items():
        if turn is Turn.GLANCE:
            guards.glanced(known)
        else:
            guards.analysed(a_guard(known), FINE, is_worse=False)
    return Counter(turns.items())


@pytest.mark.parametrize("count", [1, 7, 50, 61, 200])
def test_each_calm_guard_is_analysed_within_five_minutes_and_glanced_at_within_half_a_minute(count):
    guards = calm(count)

    ticks = [look(guards, count) for _ in range(180)]

    for known in range(count):
        analysed, seen = [
            [place for place, turns in enumerate(ticks) if any((known, turn) in turns for turn in wanted)]
            for wanted in ((Turn.ANALYSIS,), tuple(Turn))
        ]
        assert max(later - one for one, later in pairwise(analysed)) <= 300 / TICK_SECONDS
        # An analysis may come first in a tick in which a glance would have been next.
        assert max(later - one for one, later in pairwise(seen)) <= 30 / TICK_SECONDS + 1


def test_a_tick_is_about_few_of_many_calm_guards():
    guards = calm(50)

    ticks = [look(guards, 50) for _ in range(60)]

    assert max(sum(turn is Turn.ANALYSIS for _, turn in turns) for turns in ticks) == 1
    assert max(len(turns) for turns in ticks) == 10


def test_ticks_that_are_minutes_apart_analyse_each_guard():
    guards = CalmGuards(300.0)
    guards.turns([1], [1])
    guards.analysed(a_guard(), FINE, is_worse=False)

    assert guards.turns([1], [1]) == {1: Turn.ANALYSIS}


@pytest.mark.parametrize(
    ("view", "decision", "is_worse"),
    [
        (a_guard(now=OLD - 1), FINE, False),
        (a_guard(), BAD, False),
        (a_guard(), UNEVEN, False),
        (a_guard(), None, False),
        (a_guard(), FINE, True),
        (a_guard(slow_us=None), FINE, False),
        (a_guard(promoted_at=START, phase=Phase.PROMOTING), FINE, False),
        (a_guard(kind=Kind.ROLLOUT), FINE, False),
        (a_guard(step_starts=()), FINE, False),
        (a_guard(plan=replace(PLAN, canary_policy="seed")), FINE, False),
    ],
    ids=["young", "bad", "uneven", "not judged", "worse", "no threshold", "champion", "rollout", "not begun", "seed"],
)
def test_what_is_not_a_calm_old_split_is_analysed_at_each_tick(view, decision, is_worse):
    guards = calm(50)

    guards.analysed(view, decision, is_worse=is_worse)

    assert not guards.is_calm(view)
    assert all(guards.turns(range(50), range(50))[view.record.id] is Turn.ANALYSIS for _ in range(7))


def test_a_guard_that_has_alerted_and_does_not_alert_again_is_calm():
    guards = calm(2)
    failed = a_guard(phase=Phase.WAITING)

    guards.analysed(failed, BAD, is_worse=True)

    assert guards.is_calm(failed)


def test_another_policy_is_watched_closely_for_half_an_hour_again():
    guards = calm(2)
    changed = a_guard(generation=5, now=OLD + 600)

    before = guards.is_calm(changed)
    guards.analysed(changed, FINE, is_worse=False)
    after = guards.is_calm(changed)
    guards.analysed(changed._replace(read_at=OLD + 600 + CALM_SECONDS), FINE, is_worse=False)

    assert (before, after, guards.is_calm(changed)) == (False, False, True)


def test_guards_that_are_over_wait_for_no_turn_to_have_their_end_announced():
    guards = calm(3)

    guards.turns([0, 1, 2], [0, 2])

    assert not guards.is_calm(a_guard(1))
    assert guards.turns([0, 1, 2], [0, 2])[1] is Turn.ANALYSIS
    assert guards.is_calm(a_guard(2))
