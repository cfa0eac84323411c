from math import sqrt

import numpy as np
import pytest

from understudy.core.statistics.difference import ArmEntities, compare
from understudy.core.statistics.sample_size import FloatArray


def per_entity(numerator: FloatArray, covariate: FloatArray | None = None) -> ArmEntities:
    return ArmEntities(numerator, np.ones(len(numerator)), covariate)


def test_a_ratio_metric_has_the_spread_of_resampled_entities():
    # Entities with many requests have a higher rate, so that requests are far from independent.
    rng = np.random.default_rng(3)
    requests = rng.geometric(0.1, 1_000).astype(float)
    successes = rng.binomial(requests.astype(int), np.where(requests > 10, 0.5, 0.1)).astype(float)
    arm = ArmEntities(successes, requests)

    found = compare(arm, arm)

    assert found is not None
    drawn = rng.integers(0, 1_000, (2_000, 1_000))
    resampled = (successes[drawn].sum(1) / requests[drawn].sum(1)).std()
    # 2,000 resamples know a standard deviation to 1/sqrt(4,000) = 1.6 %, and each way is off by about 1/n.
    assert sqrt(found.variance_b / 1_000) == pytest.approx(resampled, rel=0.06)
    assert found.value_a == successes.sum() / requests.sum()


def test_the_spread_is_that_of_the_value_with_each_entity_left_out():
    rng = np.random.default_rng(9)
    requests = np.minimum(rng.zipf(2.0, 50), 200).astype(float)
    successes = rng.binomial(requests.astype(int), 0.3).astype(float)

    found = compare(ArmEntities(successes, requests), per_entity(np.array([0.0, 1.0])))

    left_out = (successes.sum() - successes) / (requests.sum() - requests)
    assert found is not None
    assert found.variance_a / 50 == pytest.approx(49 / 50 * ((left_out - left_out.mean()) ** 2).sum())
    assert found.effective_a == pytest.approx(requests.sum() ** 2 / (requests**2).sum())


def test_a_past_that_explains_most_of_the_variance_takes_it_away_and_leaves_the_difference():
    rng = np.random.default_rng(4)
    past_a, past_b = rng.normal(0, 3, 4_000), rng.normal(0, 3, 4_000)
    a, b = past_a + rng.normal(0, 1, 4_000), past_b + 0.2 + rng.normal(0, 1, 4_000)

    found = compare(per_entity(a, past_a), per_entity(b, past_b))

    assert found is not None
    assert found.theta is not None
    assert found.theta == pytest.approx(1.0, abs=6 / 3 / sqrt(8_000))
    # 1 - ρ² = 1/10; its standard error is about 0.1 · sqrt(2 / 8,000) · 3.
    assert found.variance_kept_ratio == pytest.approx(0.1, abs=0.02)
    assert found.difference == pytest.approx(0.2, abs=5 * sqrt(2 / 4_000))
    assert found.variance_a == pytest.approx((a - found.theta * past_a).var(ddof=1))


def test_what_a_past_explains_is_taken_within_the_arms_and_not_between_them():
    a, b = np.array([1.0, 2.0, 4.0, 3.0]), np.array([12.0, 13.0, 17.0])
    past_a, past_b = np.array([1.0, 3.0, 4.0, 2.0]), np.array([30.0, 29.0, 34.0])

    found = compare(per_entity(a, past_a), per_entity(b, past_b))

    together = 3 * np.cov(a, past_a) + 2 * np.cov(b, past_b)
    assert found is not None
    assert found.theta == pytest.approx(together[0, 1] / together[1, 1])
    assert found.difference == pytest.approx(b.mean() - a.mean() - found.theta * (past_b.mean() - past_a.mean()))


def test_entities_without_a_past_count_with_the_mean_of_the_others():
    a, b = np.array([1.0, 2.0, 4.0, 3.0]), np.array([2.0, 3.0, 5.0])
    past_a, past_b = np.array([1.0, np.nan, 3.0, 2.0]), np.array([np.nan, 2.0, 4.0])

    found = compare(per_entity(a, past_a), per_entity(b, past_b))

    mean = np.mean([1.0, 3.0, 2.0, 2.0, 4.0])
    filled = compare(per_entity(a, np.array([1.0, mean, 3.0, 2.0])), per_entity(b, np.array([mean, 2.0, 4.0])))
    assert found == filled


@pytest.mark.parametrize("past", [np.zeros(4), np.full(4, np.nan), np.array([0.1, 0.1, np.nan, 0.1])])
def test_a_past_that_says_nothing_changes_nothing(past):
    a, b = np.array([1.0, 2.0, 4.0, 3.0]), np.array([2.0, 3.0, 5.0, 1.0])

    assert compare(per_entity(a, past), per_entity(b, past)) == compare(per_entity(a), per_entity(b))


def test_an_arm_without_entities_or_exposures_is_not_compared():
    some = per_entity(np.array([1.0, 0.0]))

    assert compare(per_entity(np.zeros(0)), some) is None
    assert compare(some, per_entity(np.zeros(1))) is None
    assert compare(ArmEntities(np.zeros(2), np.zeros(2)), some) is None
    assert compare(ArmEntities(np.zeros(9), np.array([1.0, *[0.0] * 8])), some) is None


def ratio_arms(seed: int, *, with_calls: bool = True) -> list[ArmEntities]:
    rng = np.random.default_rng(seed)
    arms = []
    for _ in range(2):
        level, rate = rng.lognormal(2, 0.6, 400), rng.beta(2, 8, 400)
        calls, past_calls = (np.array(rng.poisson(level) + 1, dtype=np.float64) for _ in range(2))
        past = rng.binomial(past_calls.astype(int), rate).astype(float)
        numerator = rng.binomial(calls.astype(int), rate).astype(float)
        arms.append(ArmEntities(numerator, calls, past, past_calls if with_calls else None))
    return arms


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_two_covariates_take_off_what_a_regression_on_both_does(seed):
    a, b = ratio_arms(seed)
    found, plain = compare(a, b), compare(*(ArmEntities(*arm[:2]) for arm in (a, b)))

    own, pasts, means = [], [], []
    for arm in (a, b):
        value = arm.numerator.sum() / arm.denominator.sum()
        others = len(arm.numerator) - 1
        own.append((arm.numerator - value * arm.denominator) * others / (arm.denominator.sum() - arm.denominator))
        assert arm.covariate is not None
        assert arm.covariate_denominator is not None
        columns = np.column_stack([arm.covariate, arm.covariate_denominator])
        means.append(columns.mean(axis=0))
        pasts.append(columns - means[-1])
    slopes, *_ = np.linalg.lstsq(np.concatenate(pasts), np.concatenate(own), rcond=None)
    assert found is not None
    assert plain is not None
    assert found.difference == pytest.approx(plain.difference - slopes @ (means[1] - means[0]), rel=1e-9)
    assert found.variance_a == pytest.approx((own[0] - pasts[0] @ slopes).var(ddof=1), rel=1e-9)
    assert found.variance_b == pytest.approx((own[1] - pasts[1] @ slopes).var(ddof=1), rel=1e-9)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_calls_of_the_past_leave_less_of_a_ratios_variance(seed):
    with_one, with_both = compare(*ratio_arms(seed, with_calls=False)), compare(*ratio_arms(seed))

    assert with_one is not None
    assert with_both is not None
    assert with_both.variance_kept_ratio < with_one.variance_kept_ratio < 1


def test_a_second_covariate_that_says_the_same_as_the_first_or_nothing_changes_nothing():
    a, b = ratio_arms(4, with_calls=False)
    alone = compare(a, b)
    assert a.covariate is not None
    assert b.covariate is not None

    twice = compare(
        a._replace(covariate_denominator=3 * a.covariate), b._replace(covariate_denominator=3 * b.covariate)
    )
    constant = compare(*(arm._replace(covariate_denominator=np.ones(400)) for arm in (a, b)))

    assert alone is not None
    assert twice == pytest.approx(alone)
    assert constant == alone
