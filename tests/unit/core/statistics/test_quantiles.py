import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from understudy.core.statistics.quantiles import PROBABILITIES, ArmValues, compare_quantiles


def one_each(values: np.ndarray) -> ArmValues:
    return ArmValues(values, np.arange(len(values)), np.ones(len(values)))


@given(st.integers(0, 2**32 - 1), st.integers(120, 2_000))
def test_the_quantiles_are_those_of_the_inverted_distribution(seed, size):
    rng = np.random.default_rng(seed)
    a, b = rng.exponential(1, size), rng.exponential(2, size)

    found = compare_quantiles(one_each(a), one_each(b))

    for own, probability in zip(found, PROBABILITIES, strict=True):
        known = [float(np.quantile(arm, probability, method="inverted_cdf")) for arm in (a, b)]
        assert (own.value_a, own.value_b) == (known[0], known[1])
        assert own.difference == known[1] - known[0]
        if own.low is not None and own.high is not None:
            assert own.low <= own.difference <= own.high


@pytest.mark.parametrize("probability", [0.5, 0.9, 0.95])
def test_with_one_value_an_entity_the_limits_of_an_arm_are_those_of_order_statistics(probability):
    values = np.random.default_rng(1).lognormal(0, 1, 4_000)
    exact = stats.quantile_test(values, p=probability).confidence_interval(0.95)
    level = one_each(np.full(4_000, 7.0))

    (found,) = compare_quantiles(level, one_each(values), [probability])

    # The other arm is one value, so that the interval is that of this arm. Exact limits lie a value or two apart.
    assert found.low is not None
    assert found.high is not None
    ranks = np.searchsorted(np.sort(values), [found.low + 7, exact.low, found.high + 7, exact.high])
    assert abs(int(ranks[0]) - int(ranks[1])) <= 2
    assert abs(int(ranks[2]) - int(ranks[3])) <= 2


def test_values_of_one_entity_that_are_all_alike_count_as_one():
    rng = np.random.default_rng(2)
    levels = [rng.lognormal(0, 1, 500) for _ in range(2)]
    ten_each = [ArmValues(np.repeat(own, 10), np.repeat(np.arange(500), 10), np.ones(5_000)) for own in levels]

    once = compare_quantiles(one_each(levels[0]), one_each(levels[1]))
    tenfold = compare_quantiles(ten_each[0], ten_each[1])

    assert [tuple(found) for found in tenfold] == [pytest.approx(tuple(found)) for found in once]


def test_a_weight_counts_as_often_as_the_value_would():
    rng = np.random.default_rng(3)
    values, times = rng.normal(0, 1, 400), rng.integers(1, 4, 400)
    weighted = ArmValues(values, np.arange(400), times.astype(float))
    repeated = ArmValues(np.repeat(values, times), np.repeat(np.arange(400), times), np.ones(times.sum()))

    found, known = (compare_quantiles(arm, arm) for arm in (weighted, repeated))

    assert [tuple(own) for own in found] == [pytest.approx(tuple(own)) for own in known]


def test_a_quantile_with_few_entities_beyond_it_has_no_interval_and_few_entities_have_nothing():
    values = np.random.default_rng(4).normal(0, 1, 1_000)

    median, *_, highest = compare_quantiles(one_each(values[:499]), one_each(values))
    enough = compare_quantiles(one_each(values), one_each(values))[-1]

    assert median.low is not None
    # Fewer than five of 499 values lie beyond the 99th percentile.
    assert (highest.low, highest.high) == (None, None)
    assert enough.low is not None
    assert compare_quantiles(one_each(values[:99]), one_each(values)) == []


def test_many_values_of_few_entities_give_a_tail_no_interval():
    rng = np.random.default_rng(5)
    arm = ArmValues(rng.normal(0, 1, 40_000), np.repeat(np.arange(400), 100), np.ones(40_000))

    *_, p95, p99 = compare_quantiles(arm, arm)

    assert p95.low is not None
    assert p99.low is None


def test_a_quantile_between_two_values_that_are_about_as_frequent_reaches_to_both():
    level = one_each(np.ones(1_000))

    (found,) = compare_quantiles(level, one_each(np.repeat([0.0, 1.0], [495, 505])), [0.5])
    (clear,) = compare_quantiles(level, one_each(np.repeat([0.0, 1.0], [300, 700])), [0.5])
    (highest,) = compare_quantiles(level, one_each(np.repeat([0.0, 1.0], [300, 700])), [0.99])

    assert (found.value_b, found.low, found.high) == (1.0, -1.0, 0.0)
    assert (clear.value_b, clear.low, clear.high) == (1.0, 0.0, 0.0)
    assert (highest.low, highest.high) == (0.0, 0.0)


def test_a_tail_that_few_entities_make_is_less_sure_than_one_that_all_make():
    rng = np.random.default_rng(6)
    owner = np.repeat(np.arange(1_000), 10)
    of_few = ArmValues(rng.normal(0, 1, 10_000) + 10 * (owner < 40), owner, np.ones(10_000))
    of_all = of_few._replace(entities=rng.permutation(owner))
    level = ArmValues(np.zeros(10_000), owner, np.ones(10_000))

    (few,), (everybody,) = (compare_quantiles(level, arm, [0.97]) for arm in (of_few, of_all))

    assert few.low is not None
    assert few.high is not None
    assert everybody.low is not None
    assert everybody.high is not None
    assert few.high - few.low > 3 * (everybody.high - everybody.low)
