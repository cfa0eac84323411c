from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from understudy.core.statistics.sample_ratio import (
    SAMPLE_RATIO_ALPHA,
    ArmsEpoch,
    Epoch,
    sample_ratio,
    sample_ratio_of_arms,
    split_evidence,
)
from understudy.core.windows.strata import Arrivals


def an_epoch(total: int, share: float, deviations: float) -> Epoch:
    """Return an epoch in which B is some standard deviations away from its share."""
    b = round(total * share + deviations * sqrt(total * share * (1 - share)))
    return Epoch(total - min(max(b, 0), total), min(max(b, 0), total), share)


epochs = st.lists(
    st.builds(an_epoch, st.integers(0, 100_000), st.floats(0.01, 0.99), st.floats(-3, 3)), min_size=0, max_size=5
)


@pytest.mark.deep
@given(epochs)
def test_the_sample_ratio_is_chi2_for_each_epoch_and_their_sum_for_all(split):
    found = sample_ratio(split)

    statistics = [(b - (a + b) * s) ** 2 / ((a + b) * s * (1 - s)) if a + b else 0.0 for a, b, s in split]
    assert found.chi2_p_values == pytest.approx([stats.chi2.sf(statistic, 1) for statistic in statistics], abs=1e-12)
    assert found.combined_chi2_p_value == pytest.approx(stats.chi2.sf(sum(statistics), max(len(split), 1)), abs=1e-12)
    assert 0 <= found.p_value <= 1
    assert found.is_mismatch == (found.p_value < SAMPLE_RATIO_ALPHA)


@given(epochs)
def test_the_order_of_the_epochs_tells_nothing(split):
    assert sample_ratio(split).p_value == pytest.approx(sample_ratio(split[::-1]).p_value)


def test_the_average_evidence_of_an_honest_split_is_one():
    # What makes its reciprocal a p-value at every look: summed over all counts, likelihood ratio times chance is 1.
    total, share = 60, 0.3
    evidence = [1 / sample_ratio([Epoch(total - b, b, share)]).p_value for b in range(total + 1)]

    # Below one the p-value is cut at 1, so the average of what is left is a little more than the true one.
    chances = stats.binom.pmf(range(total + 1), total, share)
    assert float(np.dot(evidence, chances)) < 1.5
    assert sum(chance for e, chance in zip(evidence, chances, strict=True) if e > 1000) <= 0.001


def test_a_ramp_that_changes_the_split_on_purpose_is_no_mismatch_and_a_loss_in_every_stage_adds_up():
    honest = [Epoch(9_800, 200, 0.02), Epoch(9_000, 1_000, 0.1), Epoch(5_000, 5_000, 0.5)]
    losing = [Epoch(a, round(0.9 * b), share) for a, b, share in honest]

    assert not sample_ratio(honest).is_mismatch
    assert sample_ratio([Epoch(23_800, 6_200, 0.5)]).is_mismatch
    assert sample_ratio(losing).p_value < min(sample_ratio([epoch]).p_value for epoch in losing)


def test_an_entity_in_an_arm_that_had_no_share_is_a_mismatch_and_an_empty_arm_is_none():
    assert sample_ratio([Epoch(1_000, 1, 0.0)]).p_value == 0.0
    assert sample_ratio([Epoch(1, 1_000, 1.0)]).is_mismatch
    assert sample_ratio([Epoch(1_000, 0, 0.0), Epoch(0, 0, 0.5), Epoch(0, 500, 1.0)]).p_value == pytest.approx(1.0)
    assert sample_ratio([]).p_value == 1.0
    with pytest.raises(ValueError, match="share_b"):
        sample_ratio([Epoch(1, 1, 50.0)])


def arrivals_of(rows) -> Arrivals:
    """Rows: shipper, start, generation, champion's and challenger's new entities."""
    shippers = tuple(sorted({row[0] for row in rows}))
    columns = [
        (shippers.index(shipper), start, generation, side, new, new)
        for shipper, start, generation, *both in rows
        for side, new in enumerate(both)
    ]
    return Arrivals(shippers, *np.array(columns, np.int64).T)


def test_a_split_that_follows_a_growing_weight_is_no_mismatch_and_another_one_is():
    rng = np.random.default_rng(10)
    weights = {1: 0.02, 2: 0.10, 3: 0.50}
    starts = [(15 * n, 1 + n // 100) for n in range(300)]

    fair = [("a", s, g, rng.binomial(100, 1 - weights[g]), rng.binomial(100, weights[g])) for s, g in starts]
    late = [("a", s, g, b, c if g < 3 else round(0.8 * c)) for _, s, g, b, c in fair]

    assert split_evidence(arrivals_of(fair), weights) < log(1e4)
    assert split_evidence(arrivals_of(late), weights) > log(1e4)


@pytest.mark.parametrize(("lost_ratio", "windows"), [(0.1, 30), (0.3, 6)])
def test_healthy_steps_do_not_hide_a_loss_that_begins_at_a_later_step(lost_ratio, windows):
    weights = {1: 0.02, 2: 0.05, 3: 0.10, 4: 0.25}
    steps = [1] * 120 + [2] * 120 + [3] * 240 + [4] * windows
    shares = [(weights[g] * (1 - lost_ratio) if g == 4 else weights[g], g) for g in steps]
    rows = [("a", 15 * n, g, round(1_000 * (1 - weights[g])), round(1_000 * b)) for n, (b, g) in enumerate(shares)]

    assert split_evidence(arrivals_of(rows[:-windows]), weights) < 1
    assert split_evidence(arrivals_of(rows), weights) > log(1e4)


def test_evidence_of_a_mismatch_is_not_forgotten_when_the_split_is_mended():
    rows = [("a", 15 * n, 1, 50, 20) for n in range(40)] + [("a", 15 * n, 1, 50, 50) for n in range(40, 4_000)]

    assert split_evidence(arrivals_of(rows), {1: 0.5}) > log(1e4)


def test_several_shippers_that_meet_the_same_entities_are_averaged_and_not_multiplied():
    one = [("a", 15 * n, 1, 53, 47) for n in range(50)]
    same = [(shipper, *row[1:]) for shipper in "abcd" for row in one]

    alone, together = (split_evidence(arrivals_of(rows), {1: 0.5}) for rows in (one, same))

    assert together == pytest.approx(alone)


def test_a_shipper_without_new_entities_under_a_share_has_no_evidence_about_it():
    early = [("a", 15 * n, 1, 95, 5) for n in range(10)]
    late = [(shipper, 150 + 15 * n, 2, 25, 25) for shipper in "ab" for n in range(10)]
    none = [("c", 15 * n, 1, 0, 0) for n in range(10)]

    assert 0 <= split_evidence(arrivals_of(early + late + none), {1: 0.05, 2: 0.5}) < 1
    assert split_evidence(arrivals_of(none), {1: 0.05}) == 0.0


def test_arrivals_under_an_unknown_weight_say_nothing():
    assert split_evidence(arrivals_of([("a", 0, 9, 100, 0)]), {1: 0.5}) == 0.0
    assert split_evidence(arrivals_of([("a", 0, 1, 100, 0)]), {1: 0.0}) == 0.0
    assert split_evidence(Arrivals((), *(np.zeros(0, np.int64) for _ in range(6))), {1: 0.5}) == 0.0


counts = st.integers(0, 5_000)


@given(st.lists(st.tuples(counts, counts, st.floats(0.01, 0.99)), min_size=1, max_size=4))
def test_of_two_arms_the_ratio_over_all_arms_is_the_ratio_of_the_two(rows):
    of_two = sample_ratio([Epoch(*row) for row in rows])

    of_all = sample_ratio_of_arms([ArmsEpoch((a, b), (1 - share, share)) for a, b, share in rows])

    assert of_all.p_value == pytest.approx(of_two.p_value, rel=1e-6, abs=1e-300)
    assert of_all.chi2_p_values == pytest.approx(of_two.chi2_p_values, rel=1e-6, abs=1e-300)
    assert of_all.combined_chi2_p_value == pytest.approx(of_two.combined_chi2_p_value, rel=1e-6, abs=1e-300)
    assert of_all.entities[1] == of_two.entities_b
    assert of_all.expected[1] == pytest.approx(of_two.expected_b)


@given(st.lists(st.integers(1, 5_000), min_size=3, max_size=6))
def test_over_several_arms_chi2_is_the_one_of_scipy(entities):
    shares = np.arange(1, len(entities) + 1) / np.arange(1, len(entities) + 1).sum()

    found = sample_ratio_of_arms([ArmsEpoch(tuple(entities), tuple(shares.tolist()))])

    known = stats.chisquare(entities, shares * sum(entities)).pvalue
    assert found.chi2_p_values == pytest.approx((known,), rel=1e-9, abs=1e-300)
    assert found.combined_chi2_p_value == pytest.approx(known, rel=1e-9, abs=1e-300)


def test_a_third_arm_that_loses_entities_is_a_mismatch_that_the_other_two_do_not_show():
    found = sample_ratio_of_arms([ArmsEpoch((8_000, 1_000, 800), (0.8, 0.1, 0.1))])

    assert not sample_ratio([Epoch(8_000, 1_000, 1 / 9)]).is_mismatch
    assert found.is_mismatch
    assert found.sentence.startswith(
        "No verdict: the 3 arms have 8,000, 1,000 and 800 entities where the split gives 7,840, 980 and 980 "
        "(sample ratio p "
    )
    assert "limit 0.001). Find out who is not counted before comparing anything." in found.sentence


def test_an_arm_that_came_later_is_no_mismatch_and_one_with_entities_before_is():
    later = [ArmsEpoch((900, 100, 0), (0.9, 0.1, 0.0)), ArmsEpoch((800, 100, 100), (0.8, 0.1, 0.1))]

    honest, early = sample_ratio_of_arms(later), sample_ratio_of_arms([later[0]._replace(entities=(900, 90, 10))])

    assert honest.p_value == 1.0
    assert honest.chi2_p_values == (1.0, 1.0)
    assert early.p_value == 0.0


@pytest.mark.parametrize("shares", [(0.5, 0.4), (1.2, -0.2)])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="add up to 1"):
        sample_ratio_of_arms([ArmsEpoch((1, 1), shares)])
