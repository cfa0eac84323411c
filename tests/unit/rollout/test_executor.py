"""The order of rollouts after a tick that was cut off."""

from itertools import islice

from understudy.rollout.executor import RoundRobin


def test_a_tick_that_was_cut_off_is_gone_on_with():
    order = RoundRobin()

    assert list(islice(order.of([3, 1, 2]), 2)) == [1, 2]
    assert list(order.of([1, 2, 3, 4])) == [3, 4, 1, 2]


def test_each_has_one_turn():
    order = RoundRobin()
    assert list(order.of([1, 2, 3])) == [1, 2, 3]
    assert list(order.of([2, 3])) == [2, 3]
    assert list(order.of([])) == []
