"""Bytes of bodies that a process holds: never more than its budget, and none once the calls are over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.server.body_budget import BodyBudget, HeldBody
from understudy.errors import Overloaded

steps = st.tuples(st.integers(0, 5), st.integers(0, 40) | st.none())


@given(st.lists(steps))
def test_bodies_never_hold_more_than_the_budget_and_an_address_never_more_than_its_share(history):
    refused: list[tuple[str, int]] = []
    budget = BodyBudget(100, 60, lambda address, limit: refused.append((address, limit)))
    bodies = [HeldBody(budget, f"10.0.0.{number % 3}") for number in range(6)]

    for number, size in history:
        if size is None:
            bodies[number].data.clear()
            bodies[number].release()
            continue
        before = len(refused)
        try:
            bodies[number].append(b"x" * size)
        except Overloaded as problem:
            assert (problem.ends_connection, problem.retry_after_seconds) == (True, 1)
            assert len(refused) == before + 1
            assert not bodies[number].data
        held = [sum(len(body.data) for body in bodies[start::3]) for start in range(3)]
        assert budget.held_bytes == sum(held) <= 100
        assert max(held) <= 60

    for body in bodies:
        body.release()
    assert budget.held_bytes == 0


def test_what_is_refused_is_told_with_the_limit_that_it_met():
    refused: list[tuple[str, int]] = []
    budget = BodyBudget(100, 60, lambda address, limit: refused.append((address, limit)))

    HeldBody(budget, "10.0.0.1").append(b"x" * 60)
    with pytest.raises(Overloaded, match="bodies of this address"):
        HeldBody(budget, "10.0.0.1").append(b"x")
    with pytest.raises(Overloaded, match="bytes of bodies as it may"):
        HeldBody(budget, "10.0.0.2").append(b"x" * 41)

    assert refused == [("10.0.0.1", 60), ("10.0.0.2", 100)]
