import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from understudy.core.statistics.rank_tests import MIN_VALUES, average_ranks, compare_ranks, rank_correlation

few = settings(max_examples=30)
stars = arrays(np.float64, st.integers(MIN_VALUES, 80), elements=st.integers(1, 5).map(float))
scores = arrays(np.float64, st.integers(MIN_VALUES, 80), elements=st.floats(0, 1))
samples = st.one_of(stars, scores)


@pytest.mark.deep
@few
@given(samples, samples)
def test_the_win_ratio_is_over_all_pairs_with_ties_half(a, b):
    by_hand = np.mean((b[:, None] > a) + (b[:, None] == a) / 2)

    found = compare_ranks(a, b)

    assert found is not None
    assert found.win_ratio_b == pytest.approx(by_hand)


@pytest.mark.deep
@few
@given(samples, samples)
def test_the_p_value_is_scipys(a, b):
    found = compare_ranks(a, b)

    assert found is not None
    if np.ptp(np.concatenate([a, b])):
        expected = stats.mannwhitneyu(b, a, alternative="two-sided", method="asymptotic").pvalue
        assert found.p_value == pytest.approx(min(expected, 1.0), abs=1e-9)
    else:
        assert found.p_value == 1.0


@pytest.mark.deep
@few
@given(samples, samples)
def test_exchanging_the_arms_exchanges_the_result(a, b):
    one, other = compare_ranks(a, b), compare_ranks(b, a)

    assert one is not None
    assert other is not None
    assert one.win_ratio_b == pytest.approx(1 - other.win_ratio_b)
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.mean_a, one.sd_a) == (other.mean_b, other.sd_b)


def test_two_equal_distributions_of_five_stars_win_half_the_pairs():
    ratings = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [5, 10, 20, 40, 25])

    found = compare_ranks(ratings, ratings[::-1])

    assert found is not None
    assert (found.win_ratio_b, found.p_value, found.cohens_d) == (0.5, 1.0, 0.0)


def test_cohens_d_is_the_seeds_with_the_plain_mean_of_both_variances():
    a, b = np.tile([0.0, 2.0], 50), np.tile([1.0, 5.0], 20)

    found = compare_ranks(a, b)

    assert found is not None
    pooled = ((found.sd_a**2 + found.sd_b**2) / 2) ** 0.5
    assert found.cohens_d == pytest.approx((3 - 1) / pooled)


def test_arms_that_do_not_vary_have_no_effect_size_and_few_values_no_comparison():
    found = compare_ranks(np.zeros(MIN_VALUES), np.ones(MIN_VALUES))

    assert found is not None
    assert found.cohens_d is None
    assert found.win_ratio_b == 1.0
    assert compare_ranks(np.zeros(MIN_VALUES - 1), np.ones(500)) is None
    assert compare_ranks(np.zeros(0), np.zeros(0)) is None


def test_arms_of_one_value_each_have_no_effect_size_though_their_means_are_rounded():
    a, b = np.full(320, 0.8438902), np.full(280, 0.8317919)
    assert a.std(ddof=1) > 0, "else this tests nothing"

    found = compare_ranks(a, b)

    assert found is not None
    assert found.cohens_d is None


@given(arrays(np.float64, st.integers(0, 40), elements=st.integers(-3, 3).map(float)))
def test_equal_values_share_the_mean_of_their_ranks(values):
    assert average_ranks(values) == pytest.approx(stats.rankdata(values))


def test_the_rank_correlation_is_scipys_with_ties_and_none_where_one_side_is_constant():
    random = np.random.default_rng(83)
    a = random.normal(size=300).round(1)
    b = (a + random.normal(size=300)).round(1)

    assert rank_correlation(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert rank_correlation(a, -a) == pytest.approx(-1)
    assert rank_correlation(a, np.full(300, 0.42)) is None
