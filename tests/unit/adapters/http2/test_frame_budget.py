"""What a server may send that brings no answer: a burst, some a second, and some for each answer."""

from itertools import count

import pytest

from understudy.adapters.http2.frame_budget import BURST, MAX_SAVED, PER_ANSWER, PER_SECOND, FrameBudget
from understudy.adapters.http2.frames import ConnectionFault


def spent(budget: FrameBudget) -> int:
    """Spend until there is nothing left, and return how often that went."""
    for times in count():
        try:
            budget.spend()
        except ConnectionFault:
            return times
    raise AssertionError


def test_a_burst_is_let_pass_and_then_what_time_allows():
    clock = [0.0]
    budget = FrameBudget(lambda: clock[0])

    assert abs(spent(budget) - BURST) <= 1
    clock[0] = 0.5
    assert abs(spent(budget) - PER_SECOND / 2) <= 1
    clock[0] = 1e6
    assert abs(spent(budget) - BURST) <= 1


def test_answers_earn_frames_and_no_more_than_some_thousands_are_saved():
    budget = FrameBudget(lambda: 0.0)
    spent(budget)
    for _ in range(10):
        budget.earn()
    assert abs(spent(budget) - 10 * PER_ANSWER) <= 2

    for _ in range(MAX_SAVED):
        budget.earn()
    assert spent(budget) <= MAX_SAVED + PER_ANSWER


def test_a_frame_that_costs_several_leaves_a_debt_that_time_pays():
    clock = [0.0]
    budget = FrameBudget(lambda: clock[0])
    budget.spend(BURST - 10)
    with pytest.raises(ConnectionFault):
        budget.spend(100)

    clock[0] = 1.0

    assert abs(spent(budget) - (PER_SECOND - 90)) <= 1
