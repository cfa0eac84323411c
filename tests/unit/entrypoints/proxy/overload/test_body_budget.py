"""Bytes of bodies that a process holds: never more than its budget, and none once the calls are over."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.entrypoints.proxy.overload.body_budget import LATE_SECONDS, BodyBudget, HeldBody
from understudy.errors import Overloaded

steps = st.tuples(st.integers(0, 5), st.integers(0, 40) | st.none())


@given(st.lists(steps))
def test_bodies_never_hold_more_than_the_budget_and_an_address_never_more_than_its_share(history):
    refused: list[tuple[str, int]] = []
    budget = BodyBudget(100, 60, lambda address, limit: refused.append((address, limit)), lambda: 0.0)
    bodies = [HeldBody(budget, f"10.0.0.{number % 3}") for number in range(6)]

    for number, size in history:
        if size is None:
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


class Bodies:
    """A budget of 100 bytes, 60 for an address, its clock, and the bodies that are coming."""

    def __init__(self) -> None:
        self.now = 0.0
        self.evicted: list[HeldBody] = []
        self.refused: list[str] = []
        self.budget = BodyBudget(100, 60, lambda address, _: self.refused.append(address), lambda: self.now)

    def begin(self, address: str, size: int) -> HeldBody:
        body = HeldBody(self.budget, address)
        body.begin(lambda: self.evicted.append(body))
        body.append(b"x" * size)
        return body


def test_late_bodies_of_several_addresses_give_way_to_another_one_the_oldest_first():
    bodies = Bodies()
    slow = [bodies.begin(f"10.0.0.{number}", 25) for number in range(4)]
    bodies.now = LATE_SECONDS

    honest = bodies.begin("10.0.0.9", 40)

    assert bodies.evicted == slow[:2]
    assert bodies.refused == ["10.0.0.0", "10.0.0.1"]
    assert [body.is_evicted for body in slow] == [True, True, False, False]
    assert (bodies.budget.held_bytes, len(honest.whole())) == (90, 40)
    for body in slow[:2]:
        with pytest.raises(Overloaded):
            body.append(b"x")


def test_bodies_that_are_on_their_way_or_have_come_give_way_to_none():
    bodies = Bodies()
    come = bodies.begin("10.0.0.1", 50)
    come.whole()
    bodies.now = 2 * LATE_SECONDS
    bodies.begin("10.0.0.2", 50)
    bodies.now += LATE_SECONDS / 2

    with pytest.raises(Overloaded, match="bytes of bodies as it may"):
        bodies.begin("10.0.0.3", 1)

    assert bodies.evicted == []


def test_at_the_share_of_an_address_only_its_own_late_bodies_give_way():
    bodies = Bodies()
    other = bodies.begin("10.0.0.2", 30)
    own = [bodies.begin("10.0.0.1", 30) for _ in range(2)]
    bodies.now = LATE_SECONDS

    bodies.begin("10.0.0.1", 20)

    assert bodies.evicted == own[:1]
    assert not other.is_evicted


def test_a_late_body_that_finds_no_room_is_refused_itself():
    bodies = Bodies()
    slow = bodies.begin("10.0.0.1", 50)
    bodies.now = LATE_SECONDS
    bodies.begin("10.0.0.2", 50)

    with pytest.raises(Overloaded):
        slow.append(b"x")

    assert (bodies.evicted, bodies.budget.held_bytes) == ([], 50)
