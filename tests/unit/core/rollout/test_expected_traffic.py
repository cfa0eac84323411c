"""Expected traffic: how many entities some calls come from, and what a share of entities makes of the calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.rollout.expected_traffic import EntityCalls, entities_of, share_of_calls

spreads = st.dictionaries(st.integers(1, 500), st.integers(1, 500), min_size=1, max_size=6).map(EntityCalls)


@given(spreads, st.floats(0, 1e6), st.floats(0, 1e6))
def test_more_calls_never_come_from_fewer_entities_and_all_come_from_all(spread, one, other):
    few, many = sorted((one, other))

    assert spread.met_in(few) <= spread.met_in(many) + 1e-6
    assert spread.met_in(spread.calls) == pytest.approx(spread.entities)
    assert spread.met_in(0) == 0


def test_half_of_the_calls_meet_half_of_those_who_call_once_and_nearly_all_who_call_often():
    assert EntityCalls({1: 1_000}).met_in(500) == 500
    assert EntityCalls({20: 1_000}).met_in(10_000) > 999


def test_where_one_entity_makes_all_calls_any_two_are_of_it_and_where_none_comes_twice_none_are():
    assert EntityCalls({50: 1}).concentration == 1
    assert EntityCalls({1: 50}).concentration == 0


@given(st.floats(0.01, 0.99), st.floats(0, 1), st.floats(-2, 0))
def test_a_share_of_the_entities_is_a_share_of_the_calls_and_less_where_calls_are_concentrated(share, concentration, z):
    found = share_of_calls(share, concentration, z)

    assert 0 <= found <= share
    assert share_of_calls(share, 0.0, z) == share


def test_an_unlucky_draw_of_entities_is_two_fifths_below_the_mean_at_thirty():
    assert entities_of(0.02, 1_500, 0.0) == 30
    assert entities_of(0.02, 1_500, -1.645) == pytest.approx(21.1, abs=0.1)


@pytest.mark.deep
def test_calls_after_the_stretch_come_from_new_entities_as_well_where_many_called_once():
    rng = np.random.default_rng(5)
    calls = rng.integers(0, 200_000, 1_000_000)
    _, numbers = np.unique(np.unique(calls[:100_000], return_counts=True)[1], return_counts=True)
    known = EntityCalls(dict(enumerate(numbers.tolist(), start=1)))

    for many in (50_000, 100_000, 200_000, 400_000, 1_000_000):
        assert known.met_anew_in(many) == pytest.approx(np.unique(calls[:many]).size, rel=0.03)


def test_where_no_entity_called_once_there_are_no_others():
    tenants = EntityCalls({200: 300})

    assert tenants.met_anew_in(1e9) == tenants.met_in(1e9) == 300
    assert EntityCalls({1: 1, 50: 3}).met_anew_in(1e9) == pytest.approx(5)
