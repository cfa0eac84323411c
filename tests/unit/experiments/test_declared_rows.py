"""A declared test is read from its row within the bounds of a declaration, or refused with its place."""

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.core.experiments.ab import AbState
from understudy.core.statistics.sample_size import Effect, entities_per_arm
from understudy.errors import MigrationNeeded
from understudy.experiments.ab_plan import planned_inflation
from understudy.experiments.declared_rows import MAX_LOOKS, declared_test
from understudy.experiments.declared_tests import MetricChoice, Plan, Wanted
from understudy.ports.experiments.experiment_store import ExperimentRecord

PLAN = Plan(Wanted(0.05), MetricChoice(604_800.0), True, 0.002, 9_000, 5).to_json()
LOOK = {"at": 2_000.0, "fraction": 0.2, "state": "undecided", "sentence": "Not yet decided."}
FIGURES = {
    "entities_a": 9, "entities_b": 8, "value_a": 0.5, "value_b": 0.6, "difference": 0.1, "low": -0.1, "high": 0.3,
}  # fmt: skip
RECORD = ExperimentRecord(7, "churn", "converted", 1, 2, 1_000.0, PLAN, None, "dana", None)

CRAFTED_PLANS = [
    ("plan.looks", {"looks": 30_000_000}),
    ("plan.looks", {"looks": 3_000}),
    ("plan.looks", {"looks": MAX_LOOKS + 1}),
    ("plan.looks", {"looks": 0}),
    ("plan.looks", {"looks": -1}),
    ("plan.looks", {"looks": "5"}),
    ("plan.looks", {"looks": 2.5}),
    ("plan.looks", {"looks": True}),
    ("plan.alpha", {"alpha": 0}),
    ("plan.alpha", {"alpha": 2}),
    ("plan.alpha", {"alpha": 1e-320}),
    ("plan.alpha", {"alpha": None}),
    ("plan.entities_per_arm", {"entities_per_arm": 0}),
    ("plan.entities_per_arm", {"entities_per_arm": 1e300}),
    ("plan.entities_per_arm", {"entities_per_arm": 2**63}),
    ("plan.difference", {"difference": 0}),
    ("plan.difference", {"difference": "a"}),
    ("plan.difference", {"difference": 1e308}),
    ("plan.difference", {"difference": -1e-300}),
    ("plan.difference", {"difference": float("nan")}),
    ("plan.difference", {"difference": False}),
    ("plan.is_share", {"is_share": 1}),
    ("plan.choice.within_seconds", {"choice": {"within_seconds": -5}}),
    ("plan.choice.within_seconds", {"choice": {"within_seconds": 1e12}}),
    ("plan.choice.within_seconds", {"choice": {}}),
    ("plan.choice.per_call", {"choice": {"within_seconds": 5, "per_call": "no"}}),
    ("plan.choice", {"choice": []}),
    ("plan.wanted.amount", {"wanted": {"amount": "x"}}),
    ("plan.wanted.amount", {"wanted": {"amount": 1e308}}),
    ("plan.wanted", {"wanted": {"amount": 0.05, "of_a_newer_release": 1}}),
    ("plan.declared_at", {"declared_at": "soon"}),
    ("plan.declared_at", {"declared_at": 1e300}),
    ("plan.beside", {"beside": "abc"}),
    ("plan.beside", {"beside": None}),
    ("plan.beside", {"beside": [{"a": 1}]}),
    ("plan.beside", {"beside": [-1]}),
    ("plan.beside", {"beside": [2**70]}),
    ("plan.beside", {"beside": [9, 9]}),
    ("plan.beside", {"beside": [1.5]}),
    ("plan.beside", {"beside": [2]}),
    ("plan.beside", {"beside": list(range(10, 3_000))}),
    ("no member 'of_a_newer_release'", {"of_a_newer_release": 1}),
    ("no member '\\x1b[31m\\u202e", {"\x1b[31m\u202e" + "x" * 1_000: 1}),
]
CRAFTED_RESULTS = [
    ("result", []),
    ("result", "too long"),
    ("result.looks is missing", {}),
    ("result.looks", {"looks": 5}),
    ("result.looks", {"looks": [LOOK] * 6}),
    ("result.looks[0]", {"looks": [5]}),
    ("result.looks[0].at", {"looks": [{}]}),
    ("result.looks[0].at", {"looks": [{**LOOK, "at": 1e300}]}),
    ("result.looks[0].at", {"looks": [{**LOOK, "at": None}]}),
    ("result.looks[0].state", {"looks": [{**LOOK, "state": "zzz"}]}),
    ("result.looks[0].state", {"looks": [{**LOOK, "state": ["undecided"]}]}),
    ("result.looks[0].state", {"looks": [{**LOOK, "state": "b_better"}, {**LOOK, "fraction": 0.5}]}),
    ("result.looks[0].sentence", {"looks": [{**LOOK, "sentence": "\x1b[31mhi\u202e"}]}),
    ("result.looks[0].sentence", {"looks": [{**LOOK, "sentence": "x" * 2_001}]}),
    ("result.looks[0].fraction", {"looks": [{**LOOK, "fraction": -5}]}),
    ("result.looks[0].fraction", {"looks": [{**LOOK, "fraction": 0.19}]}),
    ("result.looks[0].figures", {"looks": [{**LOOK, "figures": 5}]}),
    ("result.looks[0].figures.entities_a", {"looks": [{**LOOK, "figures": {**FIGURES, "entities_a": -1}}]}),
    ("result.looks[0].figures.low", {"looks": [{**LOOK, "figures": {**FIGURES, "low": float("nan")}}]}),
    ("result.looks[0].figures.high", {"looks": [{**LOOK, "figures": {**FIGURES, "high": "0.3"}}]}),
    ("result.looks[0].figures.p_value", {"looks": [{**LOOK, "figures": {**FIGURES, "p_value": 2}}]}),
    ("result.looks[0].figures.value_a", {"looks": [{**LOOK, "figures": {"entities_a": 1, "entities_b": 1}}]}),
    ("result.looks[1].fraction", {"looks": [{**LOOK, "fraction": 0.9}, LOOK]}),
    ("result.looks[1].fraction", {"looks": [{**LOOK, "fraction": 1.0}, {**LOOK, "fraction": 1.0}]}),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*PLAN, *LOOK]), inner, max_size=4),
    max_leaves=8,
)


def refusal_of(record: ExperimentRecord) -> MigrationNeeded:
    with pytest.raises(MigrationNeeded) as refused:
        declared_test(record)
    return refused.value


@pytest.mark.parametrize(("place", "changed"), CRAFTED_PLANS)
def test_a_plan_outside_of_what_can_be_declared_is_refused_with_its_place(place, changed):
    refusal = refusal_of(RECORD._replace(plan={**PLAN, **changed}))

    assert place in refusal.detail
    assert "row 7 of Experiment" in refusal.detail
    assert len(refusal.detail) < 300
    assert "WHERE id = 7" in refusal.next_step
    assert refusal.detail_for_callers == refusal.detail


@pytest.mark.parametrize("plan", [[], "x", None, {}, 5, {name: PLAN[name] for name in PLAN if name != "looks"}])
def test_what_is_no_plan_at_all_is_refused(plan):
    assert "plan" in refusal_of(RECORD._replace(plan=plan)).detail


@pytest.mark.parametrize(("place", "result"), CRAFTED_RESULTS)
def test_a_result_that_no_report_can_have_stored_is_refused_with_its_place(place, result):
    assert place in refusal_of(RECORD._replace(result=result)).detail


@pytest.mark.parametrize("moment", [float("inf"), float("-inf"), 1e15])
def test_a_test_that_began_or_ended_at_no_moment_is_refused(moment):
    assert "started_at" in refusal_of(RECORD._replace(started_at=moment)).detail
    assert "ended_at" in refusal_of(RECORD._replace(ended_at=moment)).detail


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([*PLAN, "beside"]), json_values, max_size=3), json_values)
def test_any_json_is_a_test_whose_report_can_be_computed_or_is_refused(changed, result):
    row = RECORD._replace(plan={**PLAN, **changed}, result=result)

    try:
        found = declared_test(row)
    except MigrationNeeded:
        return

    assert len(found.plan.judged().looks) == found.plan.looks <= MAX_LOOKS
    assert len(found.looks) <= found.plan.looks
    assert planned_inflation(Effect(found.plan.difference, 1.0, 1.0), found.plan.looks, 1 + len(found.plan.beside)) >= 1
    assert orjson.loads(orjson.dumps(found.plan.to_json()))


def test_a_difference_below_zero_is_one_of_a_metric_below_zero():
    assert declared_test(RECORD._replace(plan={**PLAN, "difference": -0.5})).plan.difference == -0.5


@pytest.mark.parametrize("difference", [1e-100, 1e-9, 1e-6, 1e-4, 1.0, 1e100])
def test_the_size_of_a_test_is_found_at_once_for_every_difference_that_can_be_declared(difference):
    assert 2 <= entities_per_arm(Effect(difference, 1e6, 1e6)) <= 10**15


def test_all_states_of_an_interim_analysis_can_be_read():
    for state in (AbState.UNDECIDED, AbState.A_BETTER, AbState.B_BETTER, AbState.NO_DIFFERENCE):
        assert (
            declared_test(RECORD._replace(result={"looks": [{**LOOK, "state": state.value}]})).looks[0].state is state
        )
