"""A tally that sees values in parts says what the same values say together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from traffic.drift import categorical_baseline, numeric_baseline

from understudy.core.drift.baseline_tally import MAX_DISTINCT, CategoricalTally, NumericTally, numbers_for_tally
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.window import MAX_SCORE

numbers = st.floats(-1e6, 1e6, allow_subnormal=False) | st.none()
parts_of_numbers = st.lists(st.lists(numbers, max_size=30), min_size=1, max_size=6)
names = st.sampled_from(["US", "BR", "DE", "FR"]) | st.none()


@given(parts_of_numbers)
def test_numbers_in_parts_have_the_baseline_of_all_of_them(parts):
    tally = NumericTally(0.5)
    for part in parts:
        tally.add(numbers_for_tally(part))
    together = numbers_for_tally(value for part in parts for value in part)

    found = tally.baseline()

    if np.isnan(together).all():
        assert found is None
        return
    known = numeric_baseline(together, threshold=0.5)
    assert found is not None
    assert (found.rows, found.histogram, found.positive_ratio) == (known.rows, known.histogram, known.positive_ratio)
    assert found.null_ratio == pytest.approx(known.null_ratio)
    assert found.mean == pytest.approx(known.mean, rel=1e-9, abs=1e-6)
    assert found.standard_deviation == pytest.approx(known.standard_deviation, rel=1e-6, abs=1e-4)


def test_positives_are_those_from_the_threshold_on():
    tally = NumericTally(0.7)

    tally.add(np.array([0.1, 0.69, 0.7, 0.9]))

    found = tally.baseline()
    assert found is not None
    assert found.positive_ratio == 0.5


def test_the_spread_of_values_far_from_zero_is_not_lost():
    drawn = 1e9 + np.random.default_rng(3).normal(size=20_000)
    tally = NumericTally()

    for part in np.split(drawn, 40):
        tally.add(part)

    found = tally.baseline()
    assert found is not None
    assert found.standard_deviation == pytest.approx(drawn.std(), rel=1e-4)


def test_quantiles_are_within_1_percent():
    drawn = np.random.default_rng(5).lognormal(size=20_000)
    tally = NumericTally()

    tally.add(drawn)

    found = tally.baseline()
    assert found is not None
    assert found.positive_ratio is None
    assert list(found.quantiles.values()) == pytest.approx(
        np.quantile(drawn, list(found.quantiles), method="inverted_cdf").tolist(), rel=0.01
    )


@given(st.lists(st.lists(names, max_size=30), min_size=1, max_size=6))
def test_names_in_parts_have_the_baseline_of_all_of_them(parts):
    tally = CategoricalTally()
    for part in parts:
        tally.add(part)
    together = [name for part in parts for name in part]

    found = tally.baseline()

    if not any(name is not None for name in together):
        assert found is None
        return
    known = categorical_baseline(together)
    assert found is not None
    assert dict(found.shares) == dict(known.shares)
    assert (found.rows, found.null_ratio) == (known.rows, known.null_ratio)


def test_too_many_texts_are_no_categories():
    tally = CategoricalTally()
    tally.add(map(str, range(MAX_DISTINCT)))

    with pytest.raises(ValueError, match="more than 100,000 different texts are no categories"):
        tally.add(["one more"])


def test_scores_beyond_a_million_add_to_a_mean_as_they_do_in_the_hours_that_are_compared():
    prices = np.array([400_000.0, 1_500_000.0, -2e9])
    tally = NumericTally(most=MAX_SCORE)

    tally.add(prices)

    found = tally.baseline()
    assert found is not None
    assert found.mean == pytest.approx((400_000 + MAX_SCORE - MAX_SCORE) / 3)
    assert found.histogram == Histogram.of(prices.tolist())
