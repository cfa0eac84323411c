from collections.abc import Collection, Mapping
from typing import Any

import pytest

from understudy.core.drift.skew.pairs import Match, Pair, are_equal, compared

SERVED = {"amount": 1250.0, "country": "US", "age_days": 3, "score": 0.1, "is_new": True}


def matches(
    stored: Mapping[str, Any], served: Mapping[str, Any] = SERVED, defaulted: Collection[str] = ()
) -> dict[str, Match]:
    return {pair.feature: pair.match for pair in compared(served, defaulted, stored)}


def test_each_feature_of_the_store_is_compared_with_what_the_call_was_served():
    stored = {"amount": 12.5, "country": "US", "age_days": 3.0, "score": 0.1 + 1e-9, "is_new": False}

    assert matches(stored) == {
        "amount": Match.DIFFERS,
        "country": Match.SAME,
        "age_days": Match.SAME,
        "score": Match.SAME,
        "is_new": Match.DIFFERS,
    }


def test_numbers_that_differ_say_by_what_they_are_multiplied():
    assert list(compared(SERVED, (), {"amount": 12.5, "age_days": 0})) == [
        Pair("amount", Match.DIFFERS, 100.0),
        Pair("age_days", Match.DIFFERS),
    ]


def test_a_default_or_null_in_the_place_of_a_stored_value_is_missing():
    assert matches({"amount": 1250.0}, defaulted=("amount",)) == {"amount": Match.MISSING}
    assert matches({"amount": 1250.0}, {"amount": None}) == {"amount": Match.MISSING}


def test_what_the_store_does_not_have_or_the_log_does_not_is_not_compared():
    assert matches({"amount": None, "secret": 7}) == {}


@pytest.mark.parametrize(
    ("served", "stored", "match"),
    [
        (3, "3", Match.SAME),
        ("3", 4, Match.DIFFERS),
        (10**400, 1.5, Match.DIFFERS),
        (10**400, 10**400, Match.SAME),
        ("US", ["US"], Match.DIFFERS),
        (1e308, 1e-308, Match.DIFFERS),
    ],
)
def test_values_of_other_types_and_sizes_are_compared_too(served, stored, match):
    assert matches({"one": stored}, {"one": served}) == {"one": match}


def test_a_value_that_the_store_lost_is_not_the_same_as_before():
    assert are_equal(1.5, 1.5)
    assert not are_equal(1.5, None)
