"""A list of outcomes: what it may say, and that each mistake is named at its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.outcome_limits import OutcomeLimit, alpha_shares, read_outcomes

HELD = {"name": "converted", "limit_ratio": 0.1, "within_seconds": 600, "holds_step": True}


def test_an_outcome_has_its_own_limits_and_usual_ones_where_it_names_none():
    limits, violations = read_outcomes([HELD, {"name": "refunds", "lower_is_better": True, "alpha_share": 0.5}])

    assert not violations
    assert limits == (
        OutcomeLimit("converted", 0.1, 600.0, lower_is_better=False, holds_step=True),
        OutcomeLimit("refunds", 0.05, 3_600.0, lower_is_better=True, holds_step=False, alpha_share=0.5),
    )


@pytest.mark.parametrize(
    ("value", "pointer", "words"),
    [
        ("converted", "", "a list of 1 to 8 outcomes"),
        ([], "", "a list of 1 to 8 outcomes"),
        ([{"name": str(number)} for number in range(9)], "", "a list of 1 to 8 outcomes"),
        (["converted"], "/0", "expected an object such as"),
        ([{"limit_ratio": 0.1}], "/0/name", "expected the name"),
        ([HELD, {"name": "x" * 256}], "/1/name", "expected the name of 1 to 255 characters"),
        ([HELD, {"name": "converted"}], "/1/name", "is named before"),
        ([{"name": "a", "limit": 0.1}], "/0/limit", "is not known; there are name, limit_ratio"),
        ([{"name": "a", "limit_ratio": 1}], "/0/limit_ratio", "a number from 0 to 0.99"),
        ([{"name": "a", "limit_ratio": float("nan")}], "/0/limit_ratio", "a number from 0 to 0.99"),
        ([{**HELD, "limit_ratio": 0}], "/0/limit_ratio", "0.001 at least where holds_step is true"),
        ([{"name": "a", "within_seconds": 0}], "/0/within_seconds", "a number from 1 to 2,592,000"),
        ([{"name": "a", "holds_step": 1}], "/0/holds_step", "expected true or false"),
        ([{"name": "a", "lower_is_better": "no"}], "/0/lower_is_better", "expected true or false"),
        ([{"name": "a", "alpha_share": 0}], "/0/alpha_share", "a number from 0.01 to 1"),
        ([{"name": "a", "alpha_share": 0.6}, {"name": "b", "alpha_share": 0.6}], "", "they come to 1.2"),
        ([{"name": "a", "alpha_share": 1.0}, {"name": "b"}], "", "0.01 left for each outcome that has none"),
    ],
)
def test_what_is_wrong_is_named_at_its_place(value, pointer, words):
    _, violations = read_outcomes(value)

    assert [violation.pointer for violation in violations] == [pointer]
    assert words in violations[0].detail


@given(st.lists(st.none() | st.floats(0.01, 0.12), min_size=1, max_size=8))
def test_shares_of_alpha_never_come_to_more_than_one(shares):
    found = alpha_shares([OutcomeLimit(str(number), alpha_share=share) for number, share in enumerate(shares)])

    assert sum(found) <= 1 + 1e-9
    assert all(share > 0 for share in found)


def test_a_policy_with_a_list_comes_back_from_json_and_one_without_has_no_new_key():
    policy = CanaryPolicy.from_json({"outcomes": [HELD]})

    assert CanaryPolicy.from_json(policy.to_json()) == policy
    assert "outcomes" not in CanaryPolicy(outcome="converted").to_json()


def test_one_outcome_alone_is_a_list_of_one_that_holds_no_step():
    alone = CanaryPolicy(outcome="converted", outcome_limit_ratio=0.2, outcome_lower_is_better=True)

    assert alone.watched_outcomes == (OutcomeLimit("converted", 0.2, 3_600.0, lower_is_better=True),)


@pytest.mark.parametrize("document", [{"outcomes": []}, {"outcomes": [{}]}, {"outcomes": [HELD], "outcome": "other"}])
def test_a_policy_that_cannot_be_used_is_refused(document):
    with pytest.raises(ValueError, match="canary policy: outcome"):
        CanaryPolicy.from_json(document)
