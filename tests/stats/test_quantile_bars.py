"""The bars of quantile differences: equal arms differ as seldom, and others as often, as they should.

Short by default; ``UNDERSTUDY_STATS=full`` runs enough for figures. ``pytest -s`` shows each beside its bar.
"""

import os
import sys
from math import sqrt

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats
from scipy.optimize import brentq

from understudy.core.statistics.quantiles import PROBABILITIES, ArmValues, compare_quantiles

pytestmark = pytest.mark.timeout(600)
FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
RUNS = 4_000 if FULL else 400
ALPHA = 0.05


def said(text: str) -> None:
    sys.stdout.write(f"\n{text}")


def tolerance(rate: float, runs: int) -> float:
    """Return three standard deviations of a share of runs that has this expectation."""
    return 3 * sqrt(rate * (1 - rate) / runs)


def latencies(rng: Generator, entities: int, slower: float = 1.0, slow_tail: float = 1.0) -> ArmValues:
    """Log-normal, with a level of its own for each entity, some of which call thirty times as often as others."""
    calls = np.minimum(rng.geometric(0.15, entities), 40)
    owner = np.repeat(np.arange(entities), calls)
    level = rng.normal(0, 0.6, entities)[owner]
    values = np.exp(level + rng.normal(0, 0.5, len(owner))) * slower
    is_slow = rng.random(len(owner)) < 0.03
    return ArmValues(np.where(is_slow, values * 3 * slow_tail, values), owner, np.ones(len(owner)))


def differ(a: ArmValues, b: ArmValues) -> list[bool]:
    found = compare_quantiles(a, b)
    return [own.low is not None and own.high is not None and (own.low > 0 or own.high < 0) for own in found]


def differs(rng: Generator, b: tuple[float, float], entities: int = 2_000) -> list[bool]:
    return differ(latencies(rng, entities), latencies(rng, entities, *b))


def test_quantiles_of_equal_arms_differ_in_five_percent_at_most():
    rng = np.random.default_rng(1)

    rates = np.mean([differs(rng, (1.0, 1.0)) for _ in range(RUNS)], axis=0)

    bar = ALPHA + tolerance(ALPHA, RUNS)
    said(f"equal arms, 2,000 entities, p50 p90 p95 p99: {', '.join(f'{rate:.2%}' for rate in rates)} (bar {bar:.2%})")
    assert max(rates) <= bar
    assert min(rates) > 0


def test_the_world_of_this_bar_is_one_in_which_values_as_if_independent_fail():
    rng = np.random.default_rng(2)
    false = 0

    for _ in range(RUNS // 4):
        arms = [latencies(rng, 2_000) for _ in range(2)]
        alone = [arm._replace(entities=np.arange(len(arm.values))) for arm in arms]
        median = compare_quantiles(alone[0], alone[1], PROBABILITIES[:1])[0]
        false += median.low is not None and median.high is not None and (median.low > 0 or median.high < 0)

    said(f"control, calls as if independent, p50: {false / (RUNS // 4):.1%}")
    assert false / (RUNS // 4) > 0.15


def true_latency(probability: float, slower: float = 1.0, slow_tail: float = 1.0) -> float:
    """Return the quantile of all calls of :func:`latencies`: how often an entity calls says nothing of its level."""
    spread, added = sqrt(0.6**2 + 0.5**2), np.log(3 * slow_tail)

    def excess(logarithm: float) -> float:
        typical, slow = stats.norm.cdf(logarithm / spread), stats.norm.cdf((logarithm - added) / spread)
        return float(0.97 * typical + 0.03 * slow - probability)

    return slower * float(np.exp(brentq(excess, -10, 10)))


@pytest.mark.parametrize("entities", [1_000, 1_500])
def test_the_interval_covers_the_true_difference(entities):
    rng = np.random.default_rng(3)
    truth = [true_latency(probability, 1.2, 1.5) - true_latency(probability) for probability in PROBABILITIES]

    covered = []
    for _ in range(RUNS):
        found = compare_quantiles(latencies(rng, entities), latencies(rng, entities, 1.2, 1.5))
        limits = [(own.low or 0.0, own.high or 0.0) for own in found]
        covered.append([low <= true <= high for (low, high), true in zip(limits, truth, strict=True)])

    rates = np.mean(covered, axis=0)
    figures = ", ".join(f"{rate:.2%}" for rate in rates)
    said(f"cover the true difference, {entities:,} entities, p50 p90 p95 p99: {figures} (95 %)")
    assert min(rates) >= 0.95 - tolerance(0.05, RUNS)


def slow_entities(rng: Generator, entities: int) -> ArmValues:
    """Eight calls of each entity, all ten times as slow for two entities in a hundred: they are the p99."""
    owner = np.repeat(np.arange(entities), 8)
    is_slow = (rng.random(entities) < 0.02)[owner]
    return ArmValues(np.exp(rng.normal(0, 0.3, len(owner))) * np.where(is_slow, 10, 1), owner, np.ones(len(owner)))


def test_the_fewest_entities_that_have_a_p99_have_one_whose_limits_hold():
    rng = np.random.default_rng(5)
    level = ArmValues(np.ones(1_000), np.arange(1_000), np.ones(1_000))
    # Half of the slow calls, which are log-normal about 10, lie beyond it.
    truth = 10.0 - 1.0

    found = [compare_quantiles(level, slow_entities(rng, 500), [0.99])[0] for _ in range(RUNS)]

    covered = np.mean([own.low is not None and own.high is not None and own.low <= truth <= own.high for own in found])
    said(f"p99 of 500 entities, 2 % of which are slow: covered {covered:.2%} (95 %)")
    assert covered >= 0.95 - tolerance(0.05, RUNS)


def few_talk_most(rng: Generator, entities: int) -> ArmValues:
    """As in :func:`latencies`, but one entity in a hundred makes a third of the calls; 50 of each are looked at."""
    calls = np.clip(2 * (rng.pareto(1.3, entities) + 1), 2, 2_000).astype(int)
    kept = np.minimum(calls, 50)
    owner = np.repeat(np.arange(entities), kept)
    values = np.exp(rng.normal(0, 0.6, entities)[owner] + rng.normal(0, 0.5, len(owner)))
    is_slow = rng.random(len(owner)) < 0.03
    return ArmValues(np.where(is_slow, 3 * values, values), owner, np.repeat(calls / kept, kept))


def test_where_few_entities_make_most_calls_equal_arms_differ_in_five_percent_at_most():
    rng = np.random.default_rng(6)
    runs = RUNS // 2

    rates = np.mean([differ(few_talk_most(rng, 10_000), few_talk_most(rng, 10_000)) for _ in range(runs)], axis=0)

    bar = ALPHA + tolerance(ALPHA, runs)
    said(f"equal arms, power law, p50 p90 p95 p99: {', '.join(f'{rate:.2%}' for rate in rates)} (bar {bar:.2%})")
    assert max(rates) <= bar


def test_a_slower_arm_and_a_slower_tail_are_found():
    rng = np.random.default_rng(4)
    runs = RUNS // 4

    slower = np.mean([differs(rng, (1.15, 1.0)) for _ in range(runs)], axis=0)
    tail = np.mean([differs(rng, (1.0, 3.0)) for _ in range(runs)], axis=0)

    said(f"15 % slower: p50 {slower[0]:.0%}; slowest 3 % three times as slow: p99 {tail[-1]:.0%}, p50 {tail[0]:.0%}")
    assert slower[0] >= 0.95
    assert tail[-1] >= 0.90
