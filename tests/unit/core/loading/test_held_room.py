"""Room that a version gave up for the next one of its model."""

from hypothesis import given
from hypothesis import strategies as st

from understudy.core.loading.held_room import held_room, still_held

sizes = st.integers(1, 2**40)


@given(memory=sizes, needed=sizes, beside=sizes)
def test_it_is_enough_for_the_one_that_left_and_for_the_one_it_left_for_and_nothing_is_kept_beside_either(
    memory, needed, beside
):
    held = held_room(1, memory, {2: needed})

    assert held.left_bytes({5: beside}) >= max(memory, needed)
    for claimant in held.claimants:
        taken = held.left_bytes({5: beside, claimant: memory})
        assert taken == max(held.left_bytes({5: beside}) - memory, 0)


def test_it_is_kept_until_one_of_those_that_may_take_it_is_available_or_none_comes_any_more():
    held = held_room(1, 10, {2: 10})

    assert still_held([held], wanted={1, 2, 5}, available={5}) == [held]
    assert still_held([held], wanted={1, 2, 5}, available={2}) == []
    assert still_held([held], wanted={1, 2, 5}, available={1}) == []
    assert still_held([held], wanted={5}, available={5}) == []
    assert still_held([held.without(2)], wanted={2, 5}, available=()) == []
    assert still_held([held.without(2)], wanted={1, 5}, available=()) != []
