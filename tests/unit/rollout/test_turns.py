"""Whose turn it is after a tick that was cut off."""

from itertools import islice

from understudy.rollout.turns import Turns


def test_a_tick_that_was_cut_off_is_gone_on_with():
    turns = Turns()

    assert list(islice(turns.of([3, 1, 2]), 2)) == [1, 2]
    assert list(turns.of([1, 2, 3, 4])) == [3, 4, 1, 2]


def test_each_has_one_turn():
    turns = Turns()
    assert list(turns.of([1, 2, 3])) == [1, 2, 3]
    assert list(turns.of([2, 3])) == [2, 3]
    assert list(turns.of([])) == []
