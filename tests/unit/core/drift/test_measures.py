import numpy as np
import pytest
from scipy import stats
from traffic.drift import numeric_baseline

from understudy.core.drift.baseline import FloatArray, NumericBaseline
from understudy.core.drift.evidence import Effect, Measure, Spans
from understudy.core.drift.limits import DEFAULT_POLICY
from understudy.core.drift.measures import PSI_BINS, Grid
from understudy.core.drift.running_sums import NumericSums
from understudy.core.drift.subject_window import numeric_window

ALL = Spans(np.array([0]), np.array([1]))
NORMAL = np.random.default_rng(1).normal(size=50_000)
SKEWED = np.exp(np.random.default_rng(2).normal(size=50_000))
COUNTS = np.random.default_rng(3).poisson(2, size=50_000).astype(np.float64)
FLAGS = (np.random.default_rng(4).random(50_000) < 0.3).astype(np.float64)


def measured(before: NumericBaseline, after: FloatArray) -> dict[Measure, Effect]:
    buckets = np.random.default_rng(9).integers(0, 64, after.size)
    return NumericSums.of([numeric_window(0.0, after, buckets)], before, 0).effects(ALL, DEFAULT_POLICY.rules)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (NORMAL, NORMAL[:20_000] + 0.4),
        (NORMAL, NORMAL[:20_000] * 1.5),
        (NORMAL, NORMAL[:20_000] - 5),
        (SKEWED, SKEWED[:20_000] * 1.3),
        (COUNTS, COUNTS[:20_000] + 1),
        (FLAGS, 1 - FLAGS[:20_000]),
    ],
)
def test_the_area_between_distributions_is_the_wasserstein_distance(before, after):
    effect = measured(numeric_baseline(before), after)[Measure.WASSERSTEIN]

    exact = stats.wasserstein_distance(before, after) / before.std()
    # The grid is right to a few percent, and chance is off: 0.8 ∫ sqrt(F (1 - F)) sqrt(1/20,000 + 1/50,000) ≈ 0.01.
    assert effect.distance[0] == pytest.approx(exact, rel=0.04, abs=0.015)


def test_psi_of_a_shifted_normal_is_what_the_tenths_give():
    effect = measured(numeric_baseline(NORMAL), NORMAL[:20_000] + 0.4)[Measure.PSI]

    edges = np.quantile(NORMAL, np.arange(1, PSI_BINS) / PSI_BINS)
    shares = np.bincount(np.searchsorted(edges, NORMAL[:20_000] + 0.4), minlength=PSI_BINS) / 20_000
    by_hand = float(((shares - 0.1) * np.log(shares / 0.1)).sum())
    # A tenth ends at a cell of the histogram, up to 2 % of a value away.
    assert effect.distance[0] == pytest.approx(by_hand, rel=0.03)


@pytest.mark.deep
def test_the_same_distribution_is_at_no_distance_whatever_the_size_of_the_sample():
    generator, before = np.random.default_rng(6), numeric_baseline(NORMAL)

    found = [measured(before, generator.normal(size=500)) for _ in range(60)]

    for measure, bar in ((Measure.PSI, 0.004), (Measure.WASSERSTEIN, 0.006)):
        distances = [effects[measure].excesses[0][0] + effects[measure].limit for effects in found]
        # Chance is taken off; the standard error of the mean of 60 is below a third of the bar.
        assert abs(np.mean(distances)) < bar


def test_the_error_of_psi_is_never_below_the_one_at_the_limit():
    effect = measured(numeric_baseline(COUNTS), COUNTS)[Measure.PSI]

    # Of a sample as large as the baseline; without a floor, equal shares would have no error at all.
    assert effect.error[0] >= (4 * effect.limit * 2 / COUNTS.size) ** 0.5


@pytest.mark.deep
def test_a_small_baseline_has_chance_of_its_own():
    generator = np.random.default_rng(8)

    found = [measured(numeric_baseline(generator.normal(size=400)), generator.normal(size=2_000)) for _ in range(60)]

    # Without it PSI would be 9 / 400 = 0.022 and the area 0.06 too large on average.
    for measure, bar in ((Measure.PSI, 0.008), (Measure.WASSERSTEIN, 0.02)):
        distances = [effects[measure].excesses[0][0] + effects[measure].limit for effects in found]
        assert abs(np.mean(distances)) < bar


@pytest.mark.parametrize(("sign", "place"), [(1, 0), (-1, -1)])
def test_a_value_that_most_rows_have_fills_several_tenths(sign, place):
    grid = Grid.of(numeric_baseline(sign * np.append(np.zeros(700), np.arange(1, 301) / 100)))

    assert grid is not None
    bins = grid.psi_bins(grid.shares)
    assert bins[place] == pytest.approx(0.7)
    assert bins.sum() == pytest.approx(1)
    assert (bins > 0).all()


def test_every_value_of_the_baseline_and_beyond_has_its_bin():
    grid = Grid.of(numeric_baseline(np.array([-3.0, 0.0, 0.5, 2.0])))

    assert grid is not None
    assert grid.shares.sum() == pytest.approx(1)
    assert grid.counts_of({-(10**6): 1, 0: 2, 10**6: 3}).sum() == 6
    assert grid.counts_of({10**6: 3})[-1] == 3
    assert (grid.widths >= 0).all()
