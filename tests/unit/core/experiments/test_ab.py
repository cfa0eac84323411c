import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from understudy.core.experiments.ab import AbPlan, AbState, AbVerdict, Metric, judge
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.core.statistics.sample_ratio import SAMPLE_RATIO_ALPHA, Epoch, SampleRatio, sample_ratio
from understudy.core.statistics.sample_size import FIVE_LOOKS, FloatArray, look_boundaries

A_SHARE = Metric()
EVEN = SampleRatio(1.0, (1.0,), 1.0, 1_000.0, 1_000)
values = arrays(np.float64, st.integers(2, 60), elements=st.floats(-100, 100))
winners = {AbState.A_BETTER: "A", AbState.B_BETTER: "B"}
differences = st.builds(
    Difference,
    entities_a=st.integers(2, 20_000),
    entities_b=st.integers(2, 20_000),
    effective_a=st.floats(2, 20_000),
    effective_b=st.floats(2, 20_000),
    value_a=st.just(0.1),
    value_b=st.just(0.1),
    difference=st.floats(-1, 1),
    variance_a=st.sampled_from([0.0, 1e-6, 0.1, 1.0]),
    variance_b=st.sampled_from([0.0, 1e-6, 0.1, 1.0]),
)


def per_entity(numerator: FloatArray, covariate: FloatArray | None = None) -> ArmEntities:
    return ArmEntities(numerator, np.ones(len(numerator)), covariate)


def a_difference(difference: float = 0.0012, entities: int = 5_000, variance: float = 0.04, **changes) -> Difference:
    found = Difference(
        entities, entities, float(entities), float(entities), 0.041, 0.041 + difference, difference, variance, variance
    )
    return found._replace(**changes)


def judged(difference: Difference | None, plan: AbPlan, *looks_taken: float, metric: Metric = A_SHARE) -> AbVerdict:
    return judge(difference, plan, metric, EVEN, looks_taken)


def reach_of(verdict: AbVerdict) -> float:
    assert verdict.interval is not None
    return (verdict.interval.high - verdict.interval.low) / 2


@pytest.mark.deep
@settings(max_examples=40)
@given(values, values)
def test_for_a_metric_per_entity_the_comparison_is_the_wider_of_welchs_and_students(a, b):
    found = compare(per_entity(a), per_entity(b))

    assert found is not None
    assert found.difference == pytest.approx(b.mean() - a.mean(), abs=1e-9)
    if min(np.ptp(a), np.ptp(b)) > 1e-3:
        both = [stats.ttest_ind(b, a, equal_var=pooled) for pooled in (False, True)]
        low, high = max((test.confidence_interval(0.95) for test in both), key=lambda found: found.high - found.low)
        verdict = judged(found, AbPlan(entities_per_arm=2, minimum_entities=2))
        assert verdict.interval is not None
        assert verdict.interval[:2] == pytest.approx((low, high), rel=1e-6, abs=1e-9)
        assert verdict.p_value == pytest.approx(max(test.pvalue for test in both), rel=1e-6, abs=1e-12)


def test_a_small_arm_that_met_no_rare_value_yet_is_no_surer_for_that():
    rare = np.zeros(900)
    rare[:27] = 1.0

    verdict = judged(compare(per_entity(rare), per_entity(np.zeros(100))), AbPlan(entities_per_arm=180))

    # Three of a hundred were to be expected, and none has a chance of 0.97 ** 100 = 5 % on one side alone.
    assert verdict.state is AbState.NO_DIFFERENCE
    early = judged(compare(per_entity(rare), per_entity(np.zeros(100))), AbPlan(entities_per_arm=360))
    assert early.interval is not None
    assert early.interval.always_valid
    assert early.interval.contains_zero


@given(
    differences,
    st.sampled_from([(1.0,), FIVE_LOOKS]),
    st.lists(st.sampled_from(FIVE_LOOKS), unique=True, max_size=5).map(sorted),
    st.booleans(),
    st.sampled_from([1.0, 0.0005]),
)
def test_there_is_no_winner_that_the_test_does_not_support(difference, looks, taken, higher_is_better, ratio_p):
    plan = AbPlan(entities_per_arm=5_000, looks=looks)

    verdict = judge(difference, plan, Metric(True, higher_is_better), EVEN._replace(p_value=ratio_p), taken)

    named = re.findall(r"([AB]) is better", verdict.sentence)
    assert named == ([winners[verdict.state]] if verdict.state in winners else [])
    if verdict.state in winners:
        assert verdict.is_look
        assert verdict.interval is not None
        assert not verdict.interval.contains_zero
        assert verdict.fraction > max(taken, default=0.0)
        assert min(difference.effective_a, difference.effective_b) >= plan.minimum_entities
        assert ratio_p >= SAMPLE_RATIO_ALPHA
        b_wins = (difference.difference > 0) == higher_is_better
        assert verdict.state is (AbState.B_BETTER if b_wins else AbState.A_BETTER)
        crossed = abs(difference.difference) / difference.standard_error
        assert crossed >= look_boundaries((*taken, verdict.fraction))[-1]


def test_before_a_look_the_interval_holds_at_any_moment_and_no_p_value_is_shown():
    verdict = judged(a_difference(entities=2_000), AbPlan(entities_per_arm=10_000))

    assert verdict.state is AbState.UNDECIDED
    assert (verdict.is_look, verdict.p_value, verdict.fraction) == (False, None, 0.2)
    assert verdict.interval is not None
    assert verdict.interval.always_valid
    # 0.12 ± 3.364 standard errors of 0.632 points
    assert verdict.sentence == (
        "Not yet decided. B is ahead by 0.1 points; 95 % interval \N{MINUS SIGN}2.0 … +2.2 contains zero."
    )


def test_an_interval_away_from_zero_between_looks_decides_nothing():
    verdict = judged(a_difference(0.05, entities=2_000), AbPlan(entities_per_arm=10_000))

    assert verdict.state is AbState.UNDECIDED
    assert verdict.sentence.endswith("lies above zero, but only a declared look decides.")


def test_a_look_is_used_up_and_the_next_one_is_due_at_its_own_fraction():
    plan = AbPlan(entities_per_arm=5_000, looks=FIVE_LOOKS)

    first = judged(a_difference(entities=1_050), plan)
    between = judged(a_difference(entities=1_999), plan, first.fraction)
    again = judged(a_difference(entities=1_000), plan, 0.2)
    second = judged(a_difference(entities=2_000), plan, first.fraction)

    assert (first.is_look, first.fraction) == (True, 0.21)
    assert not between.is_look
    assert not again.is_look
    assert (second.is_look, second.state) == (True, AbState.UNDECIDED)


def test_a_look_that_comes_late_counts_once_for_all_that_it_passed():
    plan = AbPlan(entities_per_arm=50_000, looks=FIVE_LOOKS)

    late = judged(a_difference(entities=45_000), plan, 0.2)
    last = judged(a_difference(entities=60_000), plan, 0.2, 0.9)

    assert (late.is_look, late.state, last.is_look, last.fraction) == (True, AbState.UNDECIDED, True, 1.0)
    assert reach_of(late) / a_difference(entities=45_000).standard_error == pytest.approx(
        look_boundaries((0.2, 0.9))[-1], rel=1e-4
    )
    assert reach_of(last) / a_difference(entities=60_000).standard_error == pytest.approx(
        look_boundaries((0.2, 0.9, 1.0))[-1], rel=1e-4
    )
    assert last.p_value is None


def test_few_effective_entities_widen_the_interval_as_students_t_does():
    few = a_difference(effective_b=101.0)

    verdict = judged(few, AbPlan(entities_per_arm=5_000))

    # Both arms' squared errors are equal: Welch's degrees of freedom are (1 + 1)² / (1/4,999 + 1/100).
    assert reach_of(verdict) / few.standard_error == pytest.approx(
        stats.t.isf(0.025, 4 / (1 / 4_999 + 1 / 100)), rel=1e-9
    )


def test_at_its_end_the_test_says_what_it_could_have_seen():
    verdict = judged(a_difference(), AbPlan(entities_per_arm=5_000))

    assert verdict.state is AbState.NO_DIFFERENCE
    # Standard error 0.4 points: 1.96 and 1.96 + 0.84 of them.
    assert verdict.sentence == (
        "No difference shown. B is ahead by 0.12 points; 95 % interval \N{MINUS SIGN}0.66 … +0.90 contains zero. "
        "This sample sees 1.12 points with 80 % power."
    )
    assert verdict.p_value == pytest.approx(2 * stats.norm.sf(0.3), abs=1e-4)


def test_after_its_end_the_test_says_nothing_new():
    verdict = judged(a_difference(0.5), AbPlan(entities_per_arm=5_000), 1.0)

    assert (verdict.state, verdict.is_look, verdict.interval) == (AbState.CLOSED, False, None)


@pytest.mark.parametrize(
    ("difference", "metric", "sentence"),
    [
        (0.0162, Metric(), "B is better by 1.62 points; 95 % interval +0.84 … +2.40 lies above zero."),
        (-0.0162, Metric(), "A is better by 1.62 points; 95 % interval -2.40 … -0.84 lies below zero."),
        (-0.0162, Metric(True, False), "B is better by 1.62 points; 95 % interval -2.40 … -0.84 lies below zero."),
        (0.0162, Metric(False), "B is better by 0.0162; 95 % interval +0.0084 … +0.0240 lies above zero."),
    ],
)
def test_a_winner_is_named_with_its_interval_in_the_metrics_unit(difference, metric, sentence):
    verdict = judged(a_difference(difference), AbPlan(entities_per_arm=5_000), metric=metric)

    assert verdict.sentence.replace("\N{MINUS SIGN}", "-") == sentence


def test_equal_arms_are_level():
    assert "A and B are level" in judged(a_difference(0.0), AbPlan(entities_per_arm=5_000)).sentence


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (None, "no entities"),
        (a_difference(entities=99), "A has 99 entities and B 99; a verdict rests on at least 100 of each"),
        (a_difference(effective_b=12.9), "B 5,000, which weigh as 5,000 and 12 equal ones; a verdict"),
        (a_difference(variance_a=0.0, variance_b=0.0), "the same value"),
    ],
)
def test_what_is_too_early_says_what_is_missing(difference, words):
    verdict = judged(difference, AbPlan(entities_per_arm=1_000))

    assert (verdict.state, verdict.interval, verdict.is_look) == (AbState.TOO_EARLY, None, False)
    assert words in verdict.sentence


def test_values_that_differ_in_their_last_digit_alone_name_no_winner():
    seconds = np.random.default_rng(1).uniform(1, 100, 3_000)
    a, b = ArmEntities(0.1 * seconds, seconds), ArmEntities(0.3 * seconds, seconds)

    difference = compare(a, b)
    verdict = judged(difference, AbPlan(entities_per_arm=1_000))

    assert difference is not None
    assert 0 < difference.standard_error < 1e-15
    assert verdict.state is AbState.TOO_EARLY
    assert "the same value" in verdict.sentence


def test_a_split_that_is_not_the_one_that_was_set_is_the_whole_verdict():
    ratio = sample_ratio([Epoch(20_000, 18_000, 0.5)])

    verdict = judge(a_difference(0.5), AbPlan(entities_per_arm=5_000), Metric(), ratio)

    assert (verdict.state, verdict.interval, verdict.is_look) == (AbState.INVALID, None, False)
    assert "B has 18,000 entities where the split gives 19,000 (sample ratio p" in verdict.sentence


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"looks": ()}, "looks"),
        ({"looks": (0.5, 0.5, 1.0)}, "looks"),
        ({"looks": (0.0, 1.0)}, "looks"),
        ({"looks": (0.2, 0.9)}, "looks"),
        ({"alpha": 0.0}, "alpha"),
        ({"entities_per_arm": 1}, "entities_per_arm"),
        ({"minimum_entities": 1}, "minimum_entities"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        AbPlan(**{"entities_per_arm": 1_000, **changes})


def test_unequal_arms_count_as_the_equal_ones_that_tell_as_much():
    lopsided = a_difference(entities_a=9_000, entities_b=1_000)

    # 2 / (1/9,000 + 1/1,000) = 1,800
    assert judged(lopsided, AbPlan(entities_per_arm=3_600)).fraction == pytest.approx(0.5)
