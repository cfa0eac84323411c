"""What a declared test keeps."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.experiments.ab import AbState, AbVerdict, Interval
from understudy.core.statistics.difference import Difference
from understudy.experiments.declared_rows import declared_plan_from_json, declared_test, result_to_json
from understudy.experiments.declared_tests import (
    Figures,
    MetricChoice,
    Plan,
    Wanted,
    with_interim_analysis,
)
from understudy.ports.experiments.experiment_store import ExperimentRecord

amounts = st.floats(1e-6, 1e6)
plans = st.builds(
    Plan,
    st.builds(Wanted, amounts, st.booleans()),
    st.builds(MetricChoice, amounts, st.booleans(), st.booleans()),
    st.booleans(),
    amounts,
    st.integers(2, 10**9),
    st.integers(1, 20),
    st.floats(0.001, 0.5),
    st.lists(st.integers(1, 2**40), max_size=3, unique=True).map(tuple),
    st.none() | st.floats(0, 4e9),
)
PLAN = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 9_000, 5)
RECORD = ExperimentRecord(1, "churn", "converted", 1, 2, 1_000.0, PLAN.to_json(), None, "dana", None)


@given(plans)
def test_a_plan_comes_back_from_the_database_as_it_was(plan):
    assert declared_plan_from_json(orjson.loads(orjson.dumps(plan.to_json()))) == plan


def test_a_plan_beside_other_versions_comes_back_and_one_alone_is_stored_as_ever():
    together = PLAN._replace(beside=(7, 9))

    assert declared_plan_from_json(orjson.loads(orjson.dumps(together.to_json()))) == together
    assert "beside" not in PLAN.to_json()
    assert list(PLAN.to_json()) == [name for name in Plan._fields if name not in ("beside", "declared_at")]


def test_a_test_that_counts_calls_of_before_its_declaration_says_when_that_was():
    late = PLAN._replace(declared_at=1_795_000_500.25)

    assert declared_plan_from_json(orjson.loads(orjson.dumps(late.to_json()))) == late


def test_tests_beside_each_other_share_alpha_and_one_that_found_a_difference_leaves_its_share():
    together = PLAN._replace(beside=(7, 9))

    assert PLAN.judged().alpha == 0.05
    assert [together.judged(rejected).alpha for rejected in range(3)] == pytest.approx([0.05 / 3, 0.025, 0.05])


@pytest.mark.parametrize(
    ("state", "is_open"), [(AbState.UNDECIDED, True), (AbState.B_BETTER, False), (AbState.NO_DIFFERENCE, False)]
)
def test_a_look_is_kept_and_one_that_decides_is_the_last(state, is_open):
    verdict = AbVerdict(state, "so it is", Interval(-0.01, 0.05, always_valid=False), fraction=0.4, is_look=True)
    difference = Difference(400, 390, 400.0, 390.0, 0.2, 0.22, 0.02, 0.16, 0.17)
    after = with_interim_analysis(declared_test(RECORD), verdict, difference, 2_000.0)

    stored = declared_test(RECORD._replace(result=orjson.loads(orjson.dumps(result_to_json(after)))))
    assert after.is_open is is_open
    assert stored.looks == after.looks
    assert (stored.looks[0].fraction, stored.looks[0].at) == (0.4, 2_000.0)
    assert stored.looks[0].figures == Figures(400, 390, 0.2, 0.22, 0.02, -0.01, 0.05)
    assert (stored.decision is None) is is_open


@pytest.mark.parametrize(
    ("wanted", "is_share", "words"),
    [
        (Wanted(0.05), True, "a 5 % change"),
        (Wanted(0.005, is_relative=False), True, "a 0.5-point change"),
        (Wanted(2.5, is_relative=False), False, "a change of 2.5"),
    ],
)
def test_a_change_is_told_in_its_own_unit(wanted, is_share, words):
    assert wanted.words(is_share=is_share) == words


def test_a_relative_change_is_a_share_of_the_champions_value():
    assert Wanted(0.05).difference(0.04) == pytest.approx(0.002)
    assert Wanted(0.005, is_relative=False).difference(0.04) == 0.005
