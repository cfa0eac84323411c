"""Slices that a challenger does worse in: what stretches add up to, and which slices are named."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from understudy.core.canary.slices.failing_slices import (
    SliceCheck,
    SliceCounts,
    failing_slices,
    slice_counts_from_json,
    slice_counts_to_json,
    slices_words,
)
from understudy.core.canary.slices.slice_tally import SliceTally, SliceUnit, slice_units
from understudy.core.prediction_log.call_slices import ROUTED, Slice
from understudy.core.routing.policy import Role
from understudy.core.windows.slices import MAX_CELLS, MAX_VALUES, SLICE_BUCKETS, SliceColumn
from understudy.core.windows.window import MICRO, Window, WindowKey

GOLD, SILVER = Slice("category", "gold"), Slice("category", "silver")
USUAL_US = 10_000.0


def counted(calls: int, *, failing: float = 0.0, latency_us: float = USUAL_US, buckets: int = SLICE_BUCKETS):
    """Return calls of each of so many groups of entities."""
    found = np.zeros((SLICE_BUCKETS, len(SliceColumn)), np.int64)
    errors = round(calls * failing)
    found[:buckets] = [calls, errors, 0, round((calls - errors) * np.log(latency_us) * MICRO)]
    return found


def a_unit(number: int, champion, challenger) -> SliceUnit:
    totals = np.array([sum(one.sum(axis=0) for one in side.values()) for side in (champion, challenger)], float)
    totals[:, SliceColumn.LOG_LATENCY] /= MICRO
    return SliceUnit(120.0 * number, (champion, challenger), totals)


def tallied(champion, challenger, *, units: int = 10, warm_from: float = 0.0) -> SliceCounts:
    tally = SliceTally(5, warm_from)
    for number in range(units):
        tally.add(a_unit(number, champion, challenger), [0.0])
    return tally.counts()


EQUAL = {GOLD: counted(20), SILVER: counted(200)}
FAILING = {GOLD: counted(2, failing=1.0), SILVER: counted(20)}
SLOW = {GOLD: counted(2, latency_us=5 * USUAL_US), SILVER: counted(20)}


def test_a_slice_that_fails_wholly_is_named_with_both_sides_figures():
    (found,) = failing_slices(tallied(EQUAL, FAILING))

    assert found.counted.slice == GOLD
    assert found.counted.check is SliceCheck.ERRORS
    assert slices_words([found]) == (
        "category=gold: errors 100 % (320 of 320 calls) vs 0 % (0 of 3,200 calls) since 00:00 UTC"
    )


def test_a_slice_that_is_slower_is_named_by_its_typical_latency():
    (found,) = failing_slices(tallied(EQUAL, SLOW))

    assert found.counted.slice == GOLD
    assert found.counted.check is SliceCheck.LATENCY
    assert "typical latency 50 ms (320 answers) vs 10 ms = 5x" in slices_words([found])


def test_a_slice_is_not_named_before_it_does_worse_in_three_stretches():
    assert failing_slices(tallied(EQUAL, FAILING, units=2)) == ()


def test_a_category_that_is_routed_is_compared_with_who_is_held_out_beyond_all_judged_calls():
    route = Slice(ROUTED, "gold")
    judged = {SILVER: counted(200)}, {SILVER: counted(20)}
    tally, three_times = SliceTally(5, 0.0), SliceTally(5, 0.0)
    for number in range(10):
        unit = a_unit(number, *judged)
        routed = ({**judged[0], route: counted(2)}, {**judged[1], route: counted(18, failing=1.0)})
        tally.add(unit._replace(slices=routed), [0.0])
        equal = ({**judged[0], route: counted(2)}, {**judged[1], route: counted(18)})
        three_times.add(unit._replace(slices=equal), [0.0])

    (found,) = failing_slices(tally.counts())

    assert found.counted.slice == route
    assert found.counted.challenger == (2_880, 2_880)
    assert str(found.counted.slice) == "category route=gold"
    assert failing_slices(three_times.counts()) == ()


def test_windows_that_have_routed_calls_alone_are_added_up():
    key = WindowKey("a", 0, 1, Role.CHALLENGER, 1, 1, 0)
    routed = Window(key, slices={Slice(ROUTED, "gold"): counted(1)})

    (unit,) = slice_units([routed], 1)

    assert unit.slices[1].keys() == {Slice(ROUTED, "gold")}
    assert not unit.totals.any()


def test_what_one_group_of_entities_fails_is_no_slices_fault():
    challenger = {GOLD: counted(20, failing=1.0, buckets=2), SILVER: counted(200)}

    assert failing_slices(tallied(EQUAL, challenger, units=60)) == ()


def test_a_challenger_that_is_slower_for_all_is_no_slices_matter():
    challenger = {GOLD: counted(2, latency_us=2 * USUAL_US), SILVER: counted(20, latency_us=2 * USUAL_US)}

    assert failing_slices(tallied(EQUAL, challenger)) == ()


def test_stretches_in_which_the_other_calls_fail_as_well_are_left_out():
    challenger = {GOLD: counted(2, failing=1.0), SILVER: counted(20, failing=0.2)}

    assert failing_slices(tallied(EQUAL, challenger)) == ()


def test_the_latency_of_a_server_that_begins_is_not_judged():
    assert failing_slices(tallied(EQUAL, SLOW, warm_from=1_200)) == ()


def test_of_equal_slices_none_is_named():
    assert failing_slices(tallied(EQUAL, {GOLD: counted(2), SILVER: counted(20)}, units=100)) == ()


def test_two_failing_slices_are_both_named_the_surest_first():
    champion = EQUAL | {Slice("country", "DE"): counted(200)}
    challenger = FAILING | {SILVER: counted(40), Slice("country", "DE"): counted(20, failing=0.05)}

    found = failing_slices(tallied(champion, challenger, units=40))

    assert [str(one.counted.slice) for one in found] == ["category=gold", "country=DE"]
    assert slices_words(found).endswith("; 1 more: country=DE")


def test_slices_that_an_operator_knows_of_are_not_named_again():
    assert failing_slices(tallied(EQUAL, FAILING).without({"category=gold"})) == ()


@pytest.mark.deep
def test_a_slice_that_gets_worse_after_hours_is_named_by_evidence_that_began_anew():
    usual, worse = ({GOLD: counted(20, failing=ratio), SILVER: counted(200)} for ratio in (0.05, 0.15))
    tally = SliceTally(5, 0.0)
    for number in range(720):
        tally.add(a_unit(number, usual, worse if number >= 690 else usual), [0.0])

    (found,) = failing_slices(tally.counts())

    assert found.counted.since > 0


def test_what_is_stored_gives_back_the_same_names():
    counts = tallied(EQUAL, SLOW)
    again = slice_counts_from_json(orjson.loads(orjson.dumps(slice_counts_to_json(counts))))

    assert again == counts
    assert failing_slices(again) == failing_slices(counts)


@pytest.mark.parametrize("damage", [{"check": "scores"}, {"scores": [1.0]}, {"gains": []}, {"champion": [0, 0]}])
def test_stored_counts_of_another_form_are_refused(damage):
    document = orjson.loads(orjson.dumps(slice_counts_to_json(tallied(EQUAL, FAILING))))
    document["worst"][0] |= damage

    with pytest.raises(ValueError, match=r"slice|SliceCheck"):
        slice_counts_from_json(document)


def test_more_slices_than_are_told_apart_are_other_and_memory_is_bounded():
    many = {Slice(f"f{number % 4}", f"v{number}"): counted(1) for number in range(2_000)}

    counts = tallied(many, many, units=1)

    assert counts.seen <= MAX_CELLS


def test_what_was_counted_of_a_slice_that_lost_its_place_is_no_others():
    made_up = {Slice("category", f"a-{number}"): counted(1, failing=1.0) for number in range(MAX_VALUES)}
    silver_alone = {SILVER: counted(200)}, {SILVER: counted(20)}
    tally = SliceTally(5, 0.0)
    for number in range(3):
        tally.add(a_unit(number, *({**made_up, **side} for side in silver_alone)), [0.0])
    for number in range(3, 13):
        tally.add(a_unit(number, EQUAL, FAILING), [0.0])

    names = failing_slices(tally.counts())

    assert tally.counts().seen == MAX_VALUES + 2  # "other" as well, and the one whose place gold has
    (gold,) = (one for one in tally.figures() if one.slice == GOLD)
    assert gold.units == 7  # it has more than twice the calls of a made-up one in its fourth stretch
    assert names[0].counted.slice == GOLD


def test_stretches_come_from_windows_by_generation_and_role():
    def a_window(role: Role, start: int, generation: int = 1) -> Window:
        key = WindowKey("one", 0, 1, role, 7, generation, start)
        sliced = {GOLD: counted(1)}
        return Window(key, calls=16, errors=1, slow_low=3, slow_high=2, log_latency=5 * MICRO, slices=sliced)

    windows = [
        a_window(Role.CHAMPION, 120),
        a_window(Role.CHAMPION, 225),
        a_window(Role.CHALLENGER, 135),
        a_window(Role.CHALLENGER, 225, generation=2),
        a_window(Role.SHADOW, 135),
        replace(a_window(Role.CHAMPION, 120), key=WindowKey("one", 0, 1, Role.CHAMPION, 8, 1, 120)),
    ]

    first, second = slice_units(windows, 7)

    assert (first.start, second.start) == (120.0, 120.0)
    assert first.totals.tolist() == [[32, 2, 6, 10], [16, 1, 2, 5]]
    assert first.slices[0][GOLD][:, SliceColumn.CALLS].sum() == 32
    assert second.totals[0].sum() == 0
