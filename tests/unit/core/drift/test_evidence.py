from math import exp, log

import numpy as np
import pytest
from scipy import integrate, stats

from understudy.core.drift.evidence import (
    LAGS,
    Effect,
    clustered,
    design_effect,
    evidence_spans,
    log_evidence,
)


def an_effect(t: float, error: float = 0.05, buckets: float = 1e6, limit: float = 0.1, **changes: object) -> Effect:
    """Return the effect of one span, by default with so many buckets that t is z."""
    effect = Effect(
        distance=np.array([limit + t * error]),
        shift=np.array([limit + t * error]),
        excesses=(np.array([t * error]),),
        error=np.array([error]),
        buckets=np.array([buckets]),
        limit=limit,
        is_usable=np.array([True]),
    )
    return effect._replace(**changes)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize("z", [-2.0, 0.0, 1.5, 4.0])
def test_the_evidence_is_the_mixture_over_half_normal_effects(z):
    error, scale = 0.05, 0.2

    def weighed(effect: float) -> float:
        ratio = exp(effect * z / error - effect**2 / (2 * error**2))
        return ratio * 2 * float(stats.norm.pdf(effect, scale=scale))

    by_quadrature, _ = integrate.quad(weighed, 0, 2)

    assert log_evidence(an_effect(z, error))[0] == pytest.approx(log(by_quadrature), abs=1e-4)


def test_under_the_limit_itself_evidence_of_chance_is_one_on_average():
    def weighed(z: float) -> float:
        return float(np.exp(log_evidence(an_effect(z)))[0] * stats.norm.pdf(z))

    mean, _ = integrate.quad(weighed, -9, 36, limit=200)

    # With a million buckets t is not quite z.
    assert mean == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("t", [1.0, 3.0, 10.0, 50.0])
@pytest.mark.parametrize("buckets", [3, 16, 63])
def test_few_buckets_make_evidence_weaker(t, buckets):
    assert log_evidence(an_effect(t, buckets=buckets))[0] < log_evidence(an_effect(t))[0]


def test_two_directions_share_the_evidence():
    one = an_effect(4.0)
    both = one._replace(excesses=(one.excesses[0], -one.excesses[0] - 0.2))

    assert log_evidence(both)[0] == pytest.approx(log_evidence(one)[0] - log(2), abs=1e-3)


def test_what_cannot_be_told_is_no_evidence():
    assert log_evidence(an_effect(9.0, is_usable=np.array([False])))[0] == -np.inf


def test_spans_that_would_begin_before_the_first_window_are_empty():
    spans = evidence_spans(5)

    lengths = np.broadcast_to(spans.ends - spans.starts, (len(LAGS), 5))

    assert lengths[0].tolist() == [1] * 5
    assert lengths[2].tolist() == [0, 0, 3, 3, 3]
    assert not lengths[5:].any()


def test_entities_that_repeat_themselves_are_worth_one_row_each():
    generator = np.random.default_rng(3)
    errors, means = [], []
    for _ in range(400):
        buckets = generator.integers(0, 64, 300)
        rows = np.bincount(buckets, minlength=64).astype(np.float64)
        sums = np.bincount(buckets, generator.normal(size=300), 64).astype(np.float64)
        found = clustered(rows * 10, sums * 10)
        errors.append(found.variance)
        means.append(found.mean)

    # 300 independent values; the mean of 400 variances is right to 2 / sqrt(2 · 63 · 400) per standard deviation: six.
    assert np.mean(errors) == pytest.approx(1 / 300, rel=6 * 0.009)
    assert np.var(means) == pytest.approx(1 / 300, rel=6 * (2 / 400) ** 0.5)
    assert design_effect(found, np.array(1.0)) == pytest.approx(10, rel=0.8)


def test_independent_rows_have_no_design_effect_below_one():
    same = clustered(np.full(64, 5.0), np.full(64, 5.0))

    assert float(same.variance) == 0
    assert design_effect(same, np.array(1.0)) == 1
