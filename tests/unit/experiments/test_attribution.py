"""Who is compared with whom."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.statistics.difference import compare
from understudy.experiments.attribution import (
    Period,
    arms_of,
    began,
    counts_of,
    entry_epochs,
    epochs_of,
    fullest_epoch,
    periods,
    shares_of,
    values_of,
)
from understudy.ports.experiments.experiment_log import Allocation, EntityGroup

A, B, OTHER = 1, 2, 3
HALF = [Period(0.0, 0.5, (1,))]
RAMP = [Period(0.0, 0.1, (1,)), Period(50.0, 0.5, (2,))]
allocations = st.lists(
    st.tuples(st.sampled_from([A, OTHER, None]), st.sampled_from([B, OTHER, None]), st.sampled_from([0, 5, 50, 100])),
    max_size=8,
).map(lambda rows: [an_allocation(number, *row) for number, row in enumerate(rows, 1)])
groups_of_a_ramp = st.lists(
    st.builds(
        lambda is_b, epoch, numerator, past, entities: a_group(
            is_b=is_b, epoch=epoch, numerator=numerator, covariate=past, entities=entities
        ),
        st.booleans(),
        st.sampled_from([0, 1]),
        st.floats(-5, 5),
        st.none() | st.floats(-5, 5),
        st.integers(1, 20),
    ),
    max_size=12,
)


def an_allocation(
    generation: int, champion: int | None = A, challenger: int | None = B, weight: int = 50
) -> Allocation:
    return Allocation(generation, 10.0 * generation, champion, challenger, weight, None, 100, "churn")


C = 9


def with_arms(allocation: Allocation, **arms: int) -> Allocation:
    return allocation._replace(arms={int(name.removeprefix("v")): percent for name, percent in arms.items()})


def test_the_share_of_an_arm_is_of_its_own_and_the_champions_entities():
    rows = [an_allocation(1, weight=50), with_arms(an_allocation(2, weight=50), v9=10)]

    assert periods(rows, A, C) == [Period(20.0, 10 / 50, (2,))]
    assert [period.share_b for period in periods(rows, A, B)] == [0.5, 50 / 90]


def test_the_shares_of_an_allocation_are_those_of_all_versions_that_have_one():
    assert shares_of(with_arms(an_allocation(1, weight=20), v9=10, v8=0)) == {A: 0.7, B: 0.2, C: 0.1}
    assert shares_of(an_allocation(1, challenger=None, weight=0)) == {A: 1.0}


def test_generations_in_which_another_arm_changes_hands_with_nobody_of_these_two_are_one_period():
    rows = [
        with_arms(an_allocation(1, weight=20), v9=10, v8=20),
        with_arms(an_allocation(2, challenger=None, weight=0), v9=10, v8=40),
    ]

    assert [period.generations for period in periods(rows, A, C)] == [(1, 2)]
    assert began(rows, A, C) == 10.0


def test_an_arm_that_becomes_the_challenger_has_shared_the_calls_since_it_was_an_arm():
    rows = [an_allocation(1), with_arms(an_allocation(2), v9=10), an_allocation(3, challenger=C, weight=0)]

    assert began(rows, A, C) == 20.0
    assert began([*rows, an_allocation(4)], A, C) is None


def test_nothing_is_compared_while_the_champion_has_nobody():
    assert periods([with_arms(an_allocation(1, weight=60), v9=40)], A, C) == []


def a_group(**changes: Any) -> EntityGroup:
    return EntityGroup(
        is_b=False,
        epoch=0,
        slice=0,
        is_closed=True,
        numerator=1.0,
        denominator=1.0,
        covariate=None,
        entities=1,
        with_outcome=1,
        calls=2,
        own_calls=2,
        recent=0,
    )._replace(**changes)


def test_generations_in_a_row_with_one_split_are_one_period():
    found = periods([an_allocation(1), an_allocation(2), an_allocation(3, weight=60)], A, B)

    assert found == [Period(10.0, 0.5, (1, 2)), Period(30.0, 0.6, (3,))]
    assert epochs_of(found) == {1: 0, 2: 0, 3: 1}


@pytest.mark.parametrize("between", [{"weight": 0}, {"weight": 100}, {"challenger": OTHER}, {"champion": None}])
def test_what_lies_between_is_no_part_of_a_test_and_ends_a_period(between):
    found = periods([an_allocation(1), an_allocation(2, **between), an_allocation(3)], A, B)

    assert [period.generations for period in found] == [(1,), (3,)]


def test_another_salt_is_another_period():
    salted = an_allocation(2)._replace(bucket_key="salt")

    assert len(periods([an_allocation(1), salted], A, B)) == 2


@given(allocations)
def test_every_generation_in_which_both_have_a_share_is_in_exactly_one_period(rows):
    found = periods(rows, A, B)

    shared = [
        row.generation
        for row in rows
        if (row.champion_id, row.challenger_id) == (A, B) and 0 < row.challenger_weight < 100
    ]
    assert [generation for period in found for generation in period.generations] == shared


@pytest.mark.parametrize(
    ("rows", "since"),
    [
        ([an_allocation(1, weight=0), an_allocation(2), an_allocation(3, weight=0), an_allocation(4)], 20.0),
        ([an_allocation(1), an_allocation(2, challenger=OTHER), an_allocation(3)], 30.0),
        ([an_allocation(1), an_allocation(2, weight=0)], 10.0),
        ([an_allocation(1, weight=0)], None),
        ([an_allocation(1), an_allocation(2, champion=B, challenger=None)], None),
        ([], None),
    ],
)
def test_a_test_began_with_the_first_share_since_the_two_are_champion_and_challenger(rows, since):
    assert began(rows, A, B) == since


def test_with_one_split_entities_count_as_they_are():
    groups = [
        a_group(numerator=1.0, entities=3),
        a_group(numerator=0.0, entities=7),
        a_group(is_b=True, numerator=1.0, entities=2),
        a_group(is_b=True, numerator=0.0, entities=2),
    ]

    found = compare(*arms_of(groups, HALF))

    assert found is not None
    assert (found.value_a, found.value_b) == pytest.approx((0.3, 0.5))
    assert (found.entities_a, found.entities_b) == (10, 4)
    assert found.effective_a == pytest.approx(10)


def test_a_ramp_between_two_times_with_other_rates_makes_no_difference_of_equal_arms():
    # 40 % convert while B has a tenth of 1,000 entities, 20 % while it has half of 1,000.
    groups = [
        a_group(is_b=is_b, epoch=epoch, numerator=float(converted), entities=round(size * share))
        for epoch, rate, sizes in ((0, 0.4, (900, 100)), (1, 0.2, (500, 500)))
        for is_b, size in zip((False, True), sizes, strict=True)
        for converted, share in ((1, rate), (0, 1 - rate))
    ]

    weighted = compare(*arms_of(groups, RAMP))
    pooled = compare(*arms_of(groups, [period._replace(share_b=0.5) for period in RAMP]))

    assert weighted is not None
    assert pooled is not None
    assert weighted.difference == pytest.approx(0, abs=1e-12)
    assert pooled.difference == pytest.approx((0.4 * 100 + 0.2 * 500) / 600 - (0.4 * 900 + 0.2 * 500) / 1_400)
    assert weighted.effective_b < 600


@given(groups_of_a_ramp)
def test_the_covariates_of_both_arms_together_have_the_weighted_mean_zero(groups):
    a, b = arms_of(groups, RAMP)

    if a.covariate is not None and b.covariate is not None and len(a.covariate) and len(b.covariate):
        totals = [float(past.mean() * arm.denominator.sum()) for arm, past in ((a, a.covariate), (b, b.covariate))]
        assert sum(totals) == pytest.approx(0, abs=1e-6)
    assert len(a.numerator) + len(b.numerator) == sum(group.entities for group in groups)


def test_a_metric_per_call_has_the_calls_of_the_past_as_a_second_covariate():
    groups = [
        a_group(
            is_b=is_b, numerator=float(calls), denominator=float(calls), covariate=past, covariate_denominator=calls
        )
        for is_b in (False, True)
        for calls, past in ((2.0, 1.0), (4.0, None), (6.0, 5.0))
    ]

    a, b = arms_of(groups, HALF)

    assert a.covariate_denominator is not None
    assert b.covariate is not None
    assert a.covariate_denominator.tolist() == [-2.0, 0.0, 2.0]
    assert b.covariate.tolist() == [-2.0, 0.0, 2.0]
    alone, _ = arms_of([group._replace(covariate_denominator=None) for group in groups], HALF)
    assert alone.covariate_denominator is None


@pytest.mark.parametrize("pasts", [[None, None], [0.1, 0.1], [0.1, None]])
def test_a_past_that_is_the_same_for_everybody_tells_nothing(pasts):
    groups = [a_group(covariate=past, is_b=number == 1) for number, past in enumerate(pasts)]

    a, b = arms_of(groups, HALF)

    assert (a.covariate, b.covariate) == (None, None)


def test_only_entities_whose_time_is_over_and_up_to_a_slice_are_compared():
    groups = [a_group(), a_group(is_closed=False), a_group(slice=2), a_group(is_b=True)]

    everything, first = arms_of(groups, HALF), arms_of(groups, HALF, last_slice=1)

    assert [len(arm.numerator) for arm in everything] == [2, 1]
    assert [len(arm.numerator) for arm in first] == [1, 1]


def test_the_split_is_counted_over_all_entities_in_the_period_of_their_entry():
    groups = [
        a_group(entities=5, is_closed=False),
        a_group(entities=3, is_b=True),
        a_group(entities=2, epoch=1),
    ]

    found = entry_epochs(groups, RAMP)

    assert [tuple(epoch) for epoch in found] == [(5, 3, 0.1), (2, 0, 0.5)]
    assert fullest_epoch(found) == 0


def test_values_are_those_of_one_period_and_per_what_the_metric_is_per():
    groups = [a_group(numerator=6.0, denominator=3.0, entities=2), a_group(epoch=1), a_group(is_b=True)]

    assert np.array_equal(values_of(groups, 0, is_b=False), [2.0, 2.0])
    assert len(values_of(groups, 1, is_b=True)) == 0


def test_an_arm_is_made_of_its_own_groups():
    groups = [
        a_group(entities=4, with_outcome=3, calls=9, own_calls=8, recent=1),
        a_group(entities=2, is_closed=False, calls=3, recent=2),
        a_group(is_b=True, entities=50),
    ]

    found = counts_of(groups, is_b=False)

    assert tuple(found) == (6, 4, 3, 9, 8, 3)
