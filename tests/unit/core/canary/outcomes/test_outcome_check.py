from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import evaluate
from understudy.core.canary.checks import needed_of
from understudy.core.canary.decision import CheckState, Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.outcomes.outcome_check import OUTCOME
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.core.windows.window import WINDOW_SECONDS

POLICY = CanaryPolicy(dwell_seconds=600.0, detectable_ratio=5.0, outcome="converted")
STAGE = Stage("fraud", "42", 1, (0.0,), 5, 25.0, {1: 25.0})
COUNT = 48
LATER = COUNT * WINDOW_SECONDS + POLICY.watermark_seconds
WINDOWS = Traffic(World("small", requests_per_minute=2_000, error_rate=0.02), 1).windows(0, COUNT, 25.0)


def converting(entities_a: int, ratio_a: float, entities_b: int, ratio_b: float) -> Difference | None:
    def arm(entities: int, ratio: float) -> ArmEntities:
        numerator = np.zeros(entities)
        numerator[: round(entities * ratio)] = 1.0
        return ArmEntities(numerator, np.ones(entities))

    return compare(arm(entities_a, ratio_a), arm(entities_b, ratio_b))


def judged(outcome: Difference | None, **changes):
    decision = evaluate(WINDOWS, replace(POLICY, **changes), STAGE, LATER, (outcome,))
    return decision, next(row for row in decision.evidence if row.check is OUTCOME)


def test_a_challenger_whose_callers_convert_less_is_rolled_back():
    decision, row = judged(converting(30_000, 0.04, 10_000, 0.025))

    assert (decision.verdict, row.state) == (Verdict.ROLL_BACK, CheckState.FAIL)
    assert "outcome 0.025 vs 0.04 = 0.625x (0.5" in decision.reason
    assert row.limit == 0.95


def test_a_challenger_whose_callers_convert_alike_passes_once_that_is_known():
    decision, row = judged(converting(400_000, 0.2, 400_000, 0.2))

    assert (decision.verdict, row.state) == (Verdict.ADVANCE, CheckState.OK)


@pytest.mark.parametrize("outcome", [None, converting(300, 0.04, 99, 0.0), converting(30_000, 0.04, 1_000, 0.035)])
def test_what_is_not_known_yet_neither_passes_nor_holds_anything_up(outcome):
    decision, row = judged(outcome)

    assert (decision.verdict, row.state) == (Verdict.ADVANCE, CheckState.TOO_EARLY)
    nothing_found_in, _, not_known = decision.reason.partition("; not known yet: ")
    assert "outcome" in not_known
    assert "outcome" not in nothing_found_in


def test_more_is_worse_where_less_is_better():
    more, fewer = converting(30_000, 0.025, 10_000, 0.04), converting(30_000, 0.04, 10_000, 0.025)

    assert judged(more, outcome_lower_is_better=True)[0].verdict is Verdict.ROLL_BACK
    assert judged(fewer, outcome_lower_is_better=True)[1].state is CheckState.OK
    assert judged(more)[1].state is CheckState.OK


def test_arms_in_which_no_entity_converts_say_nothing():
    decision, row = judged(converting(30_000, 0.0, 10_000, 0.0))

    assert (decision.verdict, row.state) == (Verdict.ADVANCE, CheckState.TOO_EARLY)


def amounts(mean_a: float, mean_b: float, spread: float = 5.0, entities: int = 20_000) -> Difference | None:
    """Amounts that spread around their means, and have exactly these."""
    random = np.random.default_rng(4)

    def arm(mean: float) -> ArmEntities:
        values = random.normal(0.0, spread, entities)
        return ArmEntities(values - values.mean() + mean, np.ones(entities))

    return compare(arm(mean_a), arm(mean_b))


@pytest.mark.parametrize("lower_is_better", [False, True])
@pytest.mark.parametrize("mean", [-10.0, 10.0])
def test_an_equal_challenger_passes_whatever_the_sign_of_the_outcome(mean, lower_is_better):
    _, row = judged(amounts(mean, mean), outcome_lower_is_better=lower_is_better)

    assert row.state is CheckState.OK
    assert row.change == pytest.approx(1)


@pytest.mark.parametrize(
    ("lower_is_better", "better", "worse", "limit"), [(False, -9.0, -11.0, 1.05), (True, -11.0, -9.0, 0.95)]
)
def test_worse_than_a_mean_below_zero_is_farther_on_the_wrong_side(lower_is_better, better, worse, limit):
    loses, wins = (judged(amounts(-10.0, b), outcome_lower_is_better=lower_is_better) for b in (worse, better))

    assert (loses[0].verdict, loses[1].state) == (Verdict.ROLL_BACK, CheckState.FAIL)
    assert loses[1].is_beyond_limit
    assert wins[1].state is CheckState.OK
    assert wins[1].limit == pytest.approx(limit)
    assert f"outcome {worse:.3g} vs -10 = {-worse / 10:.3g}x" in loses[0].reason


@pytest.mark.parametrize("lower_is_better", [False, True])
@pytest.mark.parametrize("mean", [0.0, 0.05, -0.05])
def test_a_share_of_a_mean_that_may_be_zero_means_nothing(mean, lower_is_better):
    decision, row = judged(amounts(mean, mean), outcome_lower_is_better=lower_is_better)

    assert (decision.verdict, row.state) == (Verdict.ADVANCE, CheckState.TOO_EARLY)
    assert (row.change_low, row.change_high) == (None, None)
    assert "not known yet: outcome" in decision.reason


@pytest.mark.parametrize(("lower_is_better", "value"), [(False, -1.0), (True, 1.0)])
def test_what_is_worse_than_either_sign_would_allow_is_taken_back_even_so(lower_is_better, value):
    assert judged(amounts(0.0, value), outcome_lower_is_better=lower_is_better)[1].state is CheckState.FAIL
    assert judged(amounts(0.0, -value), outcome_lower_is_better=lower_is_better)[1].state is CheckState.TOO_EARLY


@pytest.mark.parametrize(("mean", "lower_is_better"), [(10.0, True), (-10.0, False), (10.0, False), (-10.0, True)])
def test_a_limit_of_nothing_is_on_the_wrong_side_as_well(mean, lower_is_better):
    step = 1.0 if lower_is_better else -1.0
    worse, better = (
        judged(amounts(mean, b), outcome_lower_is_better=lower_is_better, outcome_limit_ratio=0.0)[1]
        for b in (mean + step, mean - step)
    )

    assert (worse.is_beyond_limit, better.is_beyond_limit) == (True, False)
    assert (worse.state, better.state) == (CheckState.FAIL, CheckState.OK)


def test_a_declared_outcome_takes_its_part_of_the_chance_of_a_false_alarm():
    with_it, without = needed_of(POLICY), needed_of(replace(POLICY, outcome=None))

    assert sum(np.exp(-needed) for needed in with_it.values()) == pytest.approx(POLICY.alpha)
    assert all(with_it[check] > needed for check, needed in without.items())


@pytest.mark.parametrize(
    "changes", [{"outcome": ""}, {"outcome": 7}, {"outcome": "x" * 256}, {"outcome_limit_ratio": 1}]
)
def test_an_outcome_that_cannot_be_used_is_named(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        CanaryPolicy(**changes)


def test_a_direction_that_is_no_direction_is_named():
    with pytest.raises(ValueError, match="outcome_lower_is_better: expected true or false, got 'yes'"):
        CanaryPolicy.from_json({"outcome_lower_is_better": "yes"})


@pytest.mark.parametrize("arm", ["a", "b"])
@pytest.mark.parametrize("size", [1e100, -1e150, 1e200, 1e308, float("nan"), float("inf")])
def test_outcomes_of_a_size_that_floats_cannot_square_are_not_known_and_harm_no_other_check(arm, size):
    known = converting(30_000, 0.04, 10_000, 0.025)
    assert known is not None
    decision, row = judged(
        known._replace(**{f"value_{arm}": size, f"variance_{arm}": size**2 if abs(size) < 1e154 else size})
    )

    assert row.state is CheckState.TOO_EARLY
    assert decision.verdict is Verdict.ADVANCE


@pytest.mark.parametrize("arm", ["a", "b"])
@pytest.mark.parametrize("size", [5e-324, -1e-200, 1e-160])
def test_means_whose_squares_are_no_floats_any_more_harm_no_other_check(arm, size):
    known = converting(30_000, 0.04, 10_000, 0.04)
    assert known is not None

    decision, _ = judged(known._replace(**{f"value_{arm}": size}))

    assert decision.evidence[0].state is CheckState.OK
