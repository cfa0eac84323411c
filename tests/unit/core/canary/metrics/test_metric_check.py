"""Metrics of an operator's own: worse, equal, missing, unreadable; none but a comparison is a pass."""

from dataclasses import replace

import numpy as np
import pytest
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import judge
from understudy.core.canary.checks import BY_NAME, evidence_from_json, needed_of
from understudy.core.canary.decision import CheckState, Decision, Evidence, Verdict
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.metric_limits import MetricLimit
from understudy.core.canary.metric_samples import MetricSamples, ReadProblem
from understudy.core.canary.metrics.metric_check import METRICS
from understudy.core.windows.strata import stratify
from understudy.core.windows.window import WINDOW_SECONDS

BASKET = MetricLimit("basket", 'sum(euros{version="$version"})', "shop", 0.1)
REFUNDS = MetricLimit("refunds", 'sum(refunds{version="$version"})', "shop", 0.2, lower_is_better=True)
POLICY = CanaryPolicy(dwell_seconds=600.0, detectable_ratio=5.0, metrics=(BASKET,))
STAGE = Stage("fraud", "42", 1, (0.0,), 5, 25.0, {1: 25.0})
COUNT = 160
LATER = COUNT * WINDOW_SECONDS + POLICY.watermark_seconds
STRATA = stratify(Traffic(World("small", requests_per_minute=2_000, error_rate=0.02), 1).windows(0, COUNT, 25.0), 1)
NOISE = np.random.default_rng(1).normal(0, 0.05, (2, 2_000))
PAST = tuple((30.0 * np.exp(NOISE[0][:1_440])).tolist())


def samples(factor: float, minutes: int = 38, value: float = 30.0) -> MetricSamples:
    """Return minutes up to now, of a challenger that has the champion's value times ``factor``."""
    last = int(LATER) // 60 * 60
    times = tuple(range(last - 60 * (minutes - 1), last + 1, 60))
    champion, challenger = value * np.exp(NOISE[:, -minutes:])
    return MetricSamples(times, tuple(champion), tuple(factor * challenger), PAST, ReadProblem.NONE, last)


def decision_on(*metrics: MetricSamples, policy: CanaryPolicy = POLICY, stage: Stage = STAGE) -> Decision:
    return judge(STRATA, policy, stage, LATER, metrics=metrics)


def row_of(decision: Decision, number: int = 0) -> Evidence:
    return next(row for row in decision.evidence if row.check is METRICS[number])


def test_an_equal_version_passes_and_the_step_ends():
    decision = decision_on(samples(1.0))

    assert decision.verdict is Verdict.ADVANCE
    assert "metric basket" in decision.reason.partition(";")[0]
    assert row_of(decision).state is CheckState.OK


def test_a_version_whose_metric_is_worse_by_a_third_is_rolled_back_with_its_figures():
    decision = decision_on(samples(0.7))

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith("metric basket 2")
    assert " = 0.69" in decision.reason or " = 0.7" in decision.reason
    assert row_of(decision).limit == pytest.approx(0.9)


def test_which_side_is_worse_the_plan_says():
    policy = replace(POLICY, metrics=(REFUNDS,))

    assert decision_on(samples(0.5), policy=policy).verdict is Verdict.ADVANCE
    assert decision_on(samples(1.6), policy=policy).verdict is Verdict.ROLL_BACK
    assert decision_on(samples(1.6)).verdict is Verdict.ADVANCE


def test_what_is_tolerated_takes_nothing_back():
    assert row_of(decision_on(samples(0.92))).state is CheckState.OK


@pytest.mark.parametrize(
    "problem", [problem for problem in ReadProblem if problem.is_unreadable], ids=lambda problem: problem.name.lower()
)
def test_a_metric_that_cannot_be_read_holds_the_step_and_takes_nothing_back(problem):
    decision = decision_on(samples(0.5)._replace(problem=problem))

    assert decision.verdict is Verdict.HOLD
    assert decision.reason.startswith("metric basket cannot be read, which holds the step: ")
    assert row_of(decision).state is CheckState.INVALID


@pytest.mark.parametrize(
    ("known", "words"),
    [
        (MetricSamples(), "the monitor has not asked for it yet"),
        (samples(0.5, 29), "29 of 30 minutes with a value of both versions"),
        (samples(0.5)._replace(past=()), "38 of 120 minutes with a value of both versions"),
        (
            MetricSamples(problem=ReadProblem.NO_SERIES_OF_CHALLENGER, asked_at=60),
            "0 of 30 minutes with a value of both versions, no series for the challenger yet",
        ),
        (
            MetricSamples(past=PAST, problem=ReadProblem.NO_NUMBER, asked_at=60),
            "0 of 30 minutes with a value of both versions, only NaN or infinity for both versions",
        ),
    ],
)
def test_a_metric_of_which_too_little_is_known_holds_the_step(known, words):
    decision = decision_on(known if known.times or known.past else known._replace(past=PAST))

    assert decision.verdict is Verdict.HOLD
    assert decision.reason == f"metric basket cannot be compared yet, which holds the step: {words}"
    assert row_of(decision).state is CheckState.TOO_EARLY


def test_values_that_ended_a_while_ago_say_nothing_of_now():
    old = samples(0.5, 60).until(LATER - 900)._replace(asked_at=int(LATER), problem=ReadProblem.NO_SERIES_OF_CHALLENGER)

    decision = decision_on(old)

    assert decision.verdict is Verdict.HOLD
    assert "the newest minute of both versions ended 15 m 5 s ago, at " in decision.reason
    assert decision.reason.endswith(", no series for the challenger yet")


@pytest.mark.parametrize(
    ("value", "policy", "words"),
    [
        (-3.0, POLICY, "it has values below 0, of which a ratio says nothing"),
        (0.0, POLICY, "the champion has 0 in every minute, and nothing is worse than that"),
    ],
)
def test_values_that_cannot_be_compared_hold_the_step(value, policy, words):
    decision = decision_on(samples(1.0, value=value), policy=policy)

    assert decision.verdict is Verdict.HOLD
    assert decision.reason == f"metric basket cannot be read, which holds the step: {words}"
    assert row_of(decision).state is CheckState.INVALID


def still(champion: float, challenger: float, past: float | None) -> MetricSamples:
    known = () if past is None else (past,) * 1_440
    return samples(1.0, 130)._replace(champion=(champion,) * 130, challenger=(challenger,) * 130, past=known)


@pytest.mark.parametrize("has_past", [False, True])
@pytest.mark.parametrize(("champion", "challenger"), [(30.1, 38.1), (1 / 3, 0.5), (7.77, 9.6), (0.0, 2.0)])
def test_a_worse_value_that_never_changes_holds_the_step_and_takes_nothing_back(champion, challenger, has_past):
    known = still(champion, challenger, champion if has_past else None)

    decision = decision_on(known, policy=replace(POLICY, metrics=(REFUNDS,)))

    assert decision.verdict is Verdict.HOLD
    assert "it is worse and has the same value in every minute" in decision.reason
    assert row_of(decision).state is CheckState.INVALID


@pytest.mark.parametrize("challenger", [30.1, 33.3])
def test_a_value_that_never_changes_and_is_tolerated_passes(challenger):
    decision = decision_on(still(30.1, challenger, 30.1), policy=replace(POLICY, metrics=(REFUNDS,)))

    assert decision.verdict is Verdict.ADVANCE


def test_a_metric_that_neither_version_has_any_of_passes_where_less_of_it_is_better():
    decision = decision_on(samples(1.0, value=0.0), policy=replace(POLICY, metrics=(REFUNDS,)))

    assert decision.verdict is Verdict.ADVANCE


def test_metrics_share_their_part_of_alpha_and_take_some_from_the_other_checks():
    two = needed_of(replace(POLICY, metrics=(BASKET._replace(alpha_share=0.8), REFUNDS)))
    none = needed_of(replace(POLICY, metrics=()))

    spent = {name: float(np.exp(-needed)) for name, needed in two.items()}
    assert sum(spent.values()) == pytest.approx(POLICY.alpha)
    assert spent["metric_1"] == pytest.approx(4 * spent["metric_2"])
    assert two["error_rate"] > none["error_rate"]
    assert not {"metric_1", "metric_2"} & none.keys()


def test_of_several_metrics_one_that_is_worse_is_enough():
    decision = decision_on(samples(1.0), samples(1.8), policy=replace(POLICY, metrics=(BASKET, REFUNDS)))

    assert decision.verdict is Verdict.ROLL_BACK
    assert decision.reason.startswith("metric refunds ")
    assert row_of(decision).state is CheckState.OK


def test_a_row_comes_back_from_json_with_its_metric():
    row = row_of(decision_on(samples(1.0)))

    assert evidence_from_json(row.to_json()) == row
    assert row.title == "metric basket"
    assert set(METRICS) <= set(BY_NAME.values())


def test_a_new_day_needs_more_evidence_so_that_all_days_together_spend_the_same():
    stage = replace(STAGE, starts=(LATER - 86_400 * 3.5,))

    first, later = row_of(decision_on(samples(1.0))), row_of(decision_on(samples(1.0), stage=stage))

    assert later.evidence_needed == pytest.approx((first.evidence_needed or 0) * 0.9 / (0.1 / 12), rel=1e-6)
