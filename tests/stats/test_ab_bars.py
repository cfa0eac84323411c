"""The bars of A/B tests (statistics §3), through the product's own comparison and judge.

Short by default; ``UNDERSTUDY_STATS=full`` runs enough for figures. ``pytest -s`` shows each beside its bar.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import pytest
from numpy.random import Generator

from understudy.core.experiments.ab import AbPlan, AbState, AbVerdict, Metric, judge
from understudy.core.statistics.difference import ArmEntities, Difference, compare
from understudy.core.statistics.rank_tests import compare_ranks
from understudy.core.statistics.sample_ratio import SAMPLE_RATIO_ALPHA, Epoch, SampleRatio, sample_ratio
from understudy.core.statistics.sample_size import (
    ALPHA,
    FIVE_LOOKS,
    POWER_RATIO,
    FloatArray,
    entities_per_arm,
    normal_quantile,
    relative_change,
    sample_inflation_ratio,
)

pytestmark = pytest.mark.timeout(600)
FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
RUNS = 4_000 if FULL else 400
SPLIT_RUNS = 10_000 if FULL else 1_000
ONE_LOOK = (1.0,)
EVEN = SampleRatio(1.0, (), 1.0, 0.0, 0)
WINNERS = (AbState.A_BETTER, AbState.B_BETTER)
World = Callable[[Generator, int], ArmEntities]


def few_talk_much(rng: Generator, entities: int) -> ArmEntities:
    """Requests by a power law, and a success rate of its own for each entity: ten requests of one are not ten."""
    requests = np.minimum(rng.zipf(2.0, entities), 500).astype(float)
    rate = rng.beta(0.5, 4.5, entities)
    return ArmEntities(rng.binomial(requests.astype(int), rate).astype(float), requests)


def with_a_past(rng: Generator, entities: int) -> ArmEntities:
    """As before, with a pre-period that most entities have."""
    requests = rng.geometric(0.1, entities).astype(float)
    rate = rng.beta(0.5, 4.5, entities)
    past = np.where(rng.random(entities) < 0.3, np.nan, rng.binomial(20, rate) / 20)
    return ArmEntities(rng.binomial(requests.astype(int), rate).astype(float), requests, past)


def with_calls_in_the_past(rng: Generator, entities: int) -> ArmEntities:
    """Some call more than others, in the pre-period as in the test, and the more, the less often it succeeds."""
    level = rng.lognormal(2.0, 0.6, entities)
    rate = rng.beta(2, 8, entities) / (1 + level / 20)
    calls, past = rng.poisson(level) + 1, rng.poisson(level) + 1
    return ArmEntities(
        rng.binomial(calls, rate).astype(float),
        calls.astype(float),
        rng.binomial(past, rate).astype(float),
        past.astype(float),
    )


def rare_and_skewed(rng: Generator, entities: int) -> ArmEntities:
    """Revenue: one entity in twenty buys, for a log-normal sum."""
    buys = rng.random(entities) < 0.05
    return ArmEntities(buys * rng.lognormal(0.0, 1.0, entities), np.ones(entities))


def said(text: str) -> None:
    sys.stdout.write(f"\n{text}")


def tolerance(rate: float, runs: int) -> float:
    """Return three standard deviations of a share of runs that has this expectation."""
    return 3 * sqrt(rate * (1 - rate) / runs)


def first(arm: ArmEntities, entities: int) -> ArmEntities:
    pasts = (None if past is None else past[:entities] for past in (arm.covariate, arm.covariate_denominator))
    return ArmEntities(arm.numerator[:entities], arm.denominator[:entities], *pasts)


def verdicts(a: ArmEntities, b: ArmEntities, plan: AbPlan) -> Iterator[AbVerdict]:
    """Yield what the test says at each declared look, as its owner sees it, until it is decided."""
    taken: list[float] = []
    for look in plan.looks:
        difference = compare(first(a, round(look * len(a.numerator))), first(b, round(look * len(b.numerator))))
        verdict = judge(difference, plan, Metric(), EVEN, taken)
        yield verdict
        if verdict.state in WINNERS:
            return
        if verdict.is_look:
            taken.append(verdict.fraction)


def winner(a: ArmEntities, b: ArmEntities, looks: Sequence[float]) -> AbState | None:
    equal = round(2 / (1 / len(a.numerator) + 1 / len(b.numerator)))
    *_, last = verdicts(a, b, AbPlan(entities_per_arm=equal, looks=tuple(looks)))
    return last.state if last.state in WINNERS else None


def request_z(a: ArmEntities, b: ArmEntities) -> float:
    """What a test that takes requests as independent would go by."""
    shares = [arm.numerator.sum() / arm.denominator.sum() for arm in (a, b)]
    pooled = (a.numerator.sum() + b.numerator.sum()) / (a.denominator.sum() + b.denominator.sum())
    error = sqrt(pooled * (1 - pooled) * (1 / a.denominator.sum() + 1 / b.denominator.sum()))
    return abs(float(shares[1] - shares[0])) / error


@pytest.mark.parametrize("looks", [ONE_LOOK, FIVE_LOOKS], ids=["one look", "five looks"])
@pytest.mark.parametrize(
    ("world", "sizes"),
    [
        (few_talk_much, (6_000, 6_000)),
        (with_a_past, (1_000, 1_000)),
        (with_calls_in_the_past, (1_000, 1_000)),
        (rare_and_skewed, (9_000, 1_000)),
    ],
    ids=["few talk much", "with a past", "with calls in the past", "rare and skewed, 9 to 1"],
)
def test_equal_arms_have_a_winner_in_five_percent_of_tests_at_most(world: World, sizes, looks):
    rng = np.random.default_rng(20_261_120)

    false = sum(winner(world(rng, sizes[0]), world(rng, sizes[1]), looks) is not None for _ in range(RUNS)) / RUNS

    bar = ALPHA + tolerance(ALPHA, RUNS)
    said(f"type I, {world.__name__}, {len(looks)} look(s): {false:.2%} of {RUNS:,} (bar {bar:.2%})")
    assert false <= bar


def test_the_world_of_this_bar_is_one_in_which_counting_requests_fails():
    rng = np.random.default_rng(1)

    false = sum(request_z(few_talk_much(rng, 2_000), few_talk_much(rng, 2_000)) > 1.96 for _ in range(RUNS)) / RUNS

    said(f"control, requests as if independent: {false:.2%}")
    assert false > 0.3


def test_a_test_has_the_power_that_it_was_planned_for_at_one_and_at_five_looks():
    rng = np.random.default_rng(2)
    effect = relative_change(0.10)
    planned = {looks: entities_per_arm(effect) * sample_inflation_ratio(looks) for looks in (ONE_LOOK, FIVE_LOOKS)}

    for looks, size in planned.items():
        entities = round(size)
        arms = ((values(rng, 1.0, entities), values(rng, 1.1, entities)) for _ in range(RUNS))
        found = sum(winner(a, b, looks) is AbState.B_BETTER for a, b in arms) / RUNS

        bar = POWER_RATIO - tolerance(POWER_RATIO, RUNS)
        said(f"power, {len(looks)} look(s), {entities:,} an arm: {found:.1%} (bar {bar:.1%})")
        assert found >= bar


def test_the_calls_of_the_past_save_entities_of_a_ratio_beyond_what_its_outcomes_do():
    rng = np.random.default_rng(9)
    kept: list[list[float]] = [[], []]

    for _ in range(RUNS // 4):
        arms = [with_calls_in_the_past(rng, 1_000) for _ in range(2)]
        of_outcomes = compare(*(arm._replace(covariate_denominator=None) for arm in arms))
        of_both = compare(*arms)
        assert of_outcomes is not None
        assert of_both is not None
        kept[0].append(of_outcomes.variance_kept_ratio)
        kept[1].append(of_both.variance_kept_ratio)

    with_one, with_both = (float(np.mean(ratios)) for ratios in kept)
    said(f"variance left by the past, a ratio: {with_one:.0%} by outcomes, {with_both:.0%} by outcomes and calls")
    assert with_both < 0.95 * with_one


def values(rng: Generator, mean: float, entities: int) -> ArmEntities:
    return ArmEntities(rng.normal(mean, 1.0, entities), np.ones(entities))


def test_a_rank_test_that_is_certain_names_no_winner_when_the_means_are_equal():
    rng = np.random.default_rng(3)
    winners = certain = 0

    for _ in range(RUNS):
        a, b = rng.exponential(1.0, 1_000), rng.normal(1.0, 0.2, 1_000)
        ranks = compare_ranks(a, b)
        certain += ranks is not None and ranks.p_value < ALPHA
        winners += winner(ArmEntities(a, np.ones(1_000)), ArmEntities(b, np.ones(1_000)), FIVE_LOOKS) is not None

    bar = ALPHA + tolerance(ALPHA, RUNS)
    said(f"equal means, other shapes: Mann-Whitney p < 5 % in {certain / RUNS:.0%}, winners {winners / RUNS:.2%}")
    said(f"  (bar {bar:.2%})")
    assert certain / RUNS > 0.95
    assert winners / RUNS <= bar


def test_every_winner_is_on_its_own_side_of_an_interval_without_zero_and_seldom_the_wrong_one():
    rng = np.random.default_rng(4)
    wrong = right = 0

    for _ in range(RUNS):
        plan = AbPlan(entities_per_arm=1_500, looks=FIVE_LOOKS)
        *_, last = verdicts(values(rng, 1.0, 1_500), values(rng, 1.05, 1_500), plan)
        named = last.sentence.startswith(("A is better", "B is better"))
        assert named == (last.state in WINNERS)
        if named:
            assert last.interval is not None
            assert last.interval.low > 0 if last.state is AbState.B_BETTER else last.interval.high < 0
        wrong += last.state is AbState.A_BETTER
        right += last.state is AbState.B_BETTER

    bar = ALPHA / 2 + tolerance(ALPHA / 2, RUNS)
    said(f"B better by 0.05 sd: B named in {right / RUNS:.1%}, A in {wrong / RUNS:.2%} (bar {bar:.2%})")
    assert wrong / RUNS <= bar


def test_the_interval_for_display_is_wrong_at_any_of_fifty_moments_in_five_percent_of_tests_at_most():
    rng = np.random.default_rng(5)
    moments = range(100, 5_001, 100)
    runs = RUNS // 4
    plan = AbPlan(entities_per_arm=10**4, looks=ONE_LOOK)

    wrong = 0
    for _ in range(runs):
        a, b = few_talk_much(rng, 5_000), few_talk_much(rng, 5_000)
        shown = (judge(compare(first(a, n), first(b, n)), plan, Metric(), EVEN).interval for n in moments)
        wrong += any(interval is not None and not interval.contains_zero for interval in shown)

    bar = ALPHA + tolerance(ALPHA, runs)
    said(f"always-valid interval over {len(moments)} moments: wrong in {wrong / runs:.2%} (bar {bar:.2%})")
    assert wrong / runs <= bar


class Split(NamedTuple):
    """New entities at each look, and B's share then."""

    entities: int
    shares: tuple[float, ...]


EVEN_SPLIT = Split(5_000, (0.5,) * 15)
RAMP = Split(10_000, (0.02, 0.02, 0.05, 0.05, 0.1, 0.1, 0.1, 0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5))


def splits(rng: Generator, split: Split, lost_ratio: float) -> Iterator[SampleRatio]:
    """Yield the sample ratio at each look; B loses a share of its entities."""
    drawn = ((share, rng.binomial(split.entities, share)) for share in split.shares)
    epochs: dict[float, Epoch] = {}
    for share, b in drawn:
        before = epochs.get(share, Epoch(0, 0, share))
        kept = int(rng.binomial(b, 1 - lost_ratio))
        epochs[share] = Epoch(before.entities_a + split.entities - b, before.entities_b + kept, share)
        yield sample_ratio(list(epochs.values()))


@pytest.mark.parametrize("split", [EVEN_SPLIT, RAMP], ids=["even", "ramp"])
def test_an_honest_split_is_called_a_mismatch_in_one_test_of_a_thousand_over_fifteen_looks(split):
    rng = np.random.default_rng(6)
    called = by_chi2 = 0

    for _ in range(SPLIT_RUNS):
        seen = list(splits(rng, split, 0.0))
        called += any(ratio.is_mismatch for ratio in seen)
        by_chi2 += any(ratio.combined_chi2_p_value < SAMPLE_RATIO_ALPHA for ratio in seen)

    bar = SAMPLE_RATIO_ALPHA + tolerance(SAMPLE_RATIO_ALPHA, SPLIT_RUNS)
    said(
        f"honest split, 15 looks: {called / SPLIT_RUNS:.3%} of {SPLIT_RUNS:,} (bar {bar:.3%}); "
        f"chi2 at each look would be {by_chi2 / SPLIT_RUNS:.3%}"
    )
    assert called / SPLIT_RUNS <= bar


@pytest.mark.parametrize("split", [EVEN_SPLIT, RAMP], ids=["even", "ramp"])
def test_five_percent_of_lost_exposures_are_found(split):
    rng = np.random.default_rng(7)
    runs = SPLIT_RUNS // 5

    found_at: list[int] = []
    for _ in range(runs):
        found_at.extend(next(([look] for look, r in enumerate(splits(rng, split, 0.05), 1) if r.is_mismatch), []))

    said(
        f"5 % of B lost: found in {len(found_at) / runs:.1%} of {runs:,} (bar 95 %), "
        f"in the median after {np.median(found_at) * split.entities:,.0f} entities"
    )
    assert len(found_at) / runs >= 0.95


def test_the_boundaries_spend_five_percent_on_a_brownian_motion():
    rng = np.random.default_rng(8)
    runs = 40 * RUNS
    plan = AbPlan(entities_per_arm=10**9, looks=FIVE_LOOKS)
    boundaries = crossing_boundaries(plan)

    walk = np.cumsum(rng.normal(0, sqrt(0.2), (runs, 5)), axis=1) / np.sqrt(plan.looks)
    crossed = (np.abs(walk) > boundaries).any(axis=1).mean()

    said(f"five looks on a Brownian motion: {crossed:.3%} of {runs:,}; fixed 1.96 would be {_peeking(walk):.1%}")
    assert abs(crossed - ALPHA) <= tolerance(ALPHA, runs)


def crossing_boundaries(plan: AbPlan) -> FloatArray:
    """Return the boundary of each look as the judge uses it, in standard errors."""
    reaches = []
    for place, look in enumerate(plan.looks):
        entities = round(look * plan.entities_per_arm)
        level = Difference(entities, entities, entities, entities, 0.0, 0.0, 0.0, 1.0, 1.0)
        verdict = judge(level, plan, Metric(), EVEN, plan.looks[:place])
        assert verdict.is_look
        assert verdict.interval is not None
        reaches.append(verdict.interval.high / level.standard_error)
    return np.array(reaches)


def _peeking(walk: FloatArray) -> float:
    return float((np.abs(walk) > normal_quantile(1 - ALPHA / 2)).any(axis=1).mean())
