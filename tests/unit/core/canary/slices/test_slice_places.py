"""Which slices are told apart where a feature has more values than places."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.canary.slices.slice_places import MAX_WAITING, SlicePlaces
from understudy.core.prediction_log.call_slices import OTHER, Slice
from understudy.core.windows.slices import MAX_CELLS, MAX_VALUES, SliceColumn, SliceCounts, no_counts

GOLD = Slice("category", "gold")


def calls_of(**values: int) -> SliceCounts:
    """Return so many calls of each category."""
    return calls_of_values(values)


def calls_of_values(values: dict[str, int]) -> SliceCounts:
    found = {}
    for value, calls in values.items():
        found[Slice("category", value)] = counted = no_counts()
        counted[0, SliceColumn.CALLS] = calls
    return found


def made_up(*, first: int = 0, calls: int = 1, count: int = MAX_VALUES) -> SliceCounts:
    return calls_of_values({f"a-{number}": calls for number in range(first, first + count)})


def test_values_have_places_as_they_come_while_there_are_some():
    places = SlicePlaces()

    changed = places.add([calls_of(gold=1), calls_of(silver=1)])

    assert changed == []
    assert {places.place_of(GOLD), places.place_of(Slice("category", "silver"))} == {0, 1}
    assert places.place_of(Slice("category", "bronze")) is None


def test_a_value_with_calls_of_both_versions_takes_the_place_of_one_that_came_once():
    places = SlicePlaces()
    places.add([made_up(), {}])

    alone = places.add([calls_of(gold=40), {}])
    waited = places.place_of(GOLD)
    both = places.add([calls_of(gold=40), calls_of(gold=1)])

    assert alone == []
    assert waited == places.place_of(Slice("category", OTHER))
    assert both == [places.place_of(GOLD)]
    assert places.names[both[0]] == GOLD


@pytest.mark.deep
def test_made_up_values_of_each_stretch_take_no_place_of_one_that_is_used():
    places = SlicePlaces()
    places.add([calls_of(gold=20), calls_of(gold=1)])
    place = places.place_of(GOLD)

    for stretch in range(200):
        crowd = made_up(first=1_000 * stretch, count=500)
        places.add([{**crowd, **calls_of(gold=20)}, {**crowd, **calls_of(gold=1)}])

    assert places.place_of(GOLD) == place


def test_a_value_that_waits_is_not_forgotten_beside_many_that_come_once():
    places = SlicePlaces()
    places.add([made_up(calls=3), made_up(calls=3)])

    for stretch in range(7):
        crowd = made_up(first=1_000 * (stretch + 1), count=500)
        places.add([{**crowd, **calls_of(gold=20)}, {**crowd, **calls_of(gold=1)}])

    assert places.names[places.place_of(GOLD) or 0] == GOLD


@pytest.mark.deep
def test_equal_values_do_not_take_turns():
    places = SlicePlaces()
    values = [f"v{number}" for number in range(200)]
    draw = Random(7)
    changes = 0
    for _ in range(300):
        some = draw.sample(values, 150)
        changes += len(places.add([calls_of_values(dict.fromkeys(some, 20)), calls_of_values(dict.fromkeys(some, 2))]))

    assert changes <= MAX_VALUES


STRETCH = st.tuples(*[st.dictionaries(st.integers(0, 300), st.integers(1, 40), max_size=200)] * 2)


@pytest.mark.deep
@settings(max_examples=30, deadline=None)
@given(st.lists(STRETCH, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_places_are_bounded_and_the_same_in_whatever_order_values_come(stretches, draw):
    places, again = SlicePlaces(), SlicePlaces()

    for stretch in stretches:
        sides = [calls_of_values({f"v{value}": calls for value, calls in side.items()}) for side in stretch]
        shuffled = [dict(draw.sample(list(side.items()), len(side))) for side in sides]
        assert places.add(sides) == again.add(shuffled)

    assert places.names == again.names
    assert len(set(places.names)) == len(places.names) <= MAX_VALUES + 1 <= MAX_CELLS
    assert sum(map(len, places._calls.values())) <= MAX_VALUES + 1 + MAX_WAITING  # noqa: SLF001 - memory is what is bounded
