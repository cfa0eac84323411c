import numpy as np
import pytest

from understudy.core.statistics.pod_noise import (
    BLOCK_SECONDS,
    BLOCK_WINDOWS,
    MAX_BLOCKS,
    NO_NOISE,
    Blocks,
    PodNoise,
    blocks_of,
    pod_noise,
)
from understudy.core.statistics.sequential_evidence import FloatArray


def blocks(means: FloatArray, number: int = 1_000, spread: float = 0.5, seed: int = 0) -> Blocks:
    """Return blocks of so many values around each of the means."""
    rng = np.random.default_rng(seed)
    values = rng.normal(means[:, None], spread, (len(means), number))
    return Blocks(np.full(len(means), float(number)), values.sum(axis=1), (values**2).sum(axis=1))


@pytest.mark.deep
def test_means_that_wander_are_told_from_single_values_that_scatter():
    rng = np.random.default_rng(1)
    calm = [pod_noise(blocks(np.full(12, 9.0), seed=seed)).variance for seed in range(200)]
    wandering = [pod_noise(blocks(9 + rng.normal(0, 0.2, 12), seed=seed)).variance for seed in range(200)]

    assert np.mean(calm) < 0.0003
    assert np.mean(wandering) == pytest.approx(0.04, rel=0.1)


def test_a_slope_over_hours_is_no_noise():
    assert pod_noise(blocks(np.linspace(9.0, 9.5, 72), number=10_000)).variance < 0.0002


def test_few_blocks_say_nothing_and_old_ones_do_not_count():
    wild = 9 + np.random.default_rng(2).normal(0, 1, 50)

    assert pod_noise(blocks(wild[:3])) == NO_NOISE
    assert pod_noise(blocks(np.append(wild, np.full(MAX_BLOCKS, 9.0)))).variance < 0.001


def test_the_noise_of_both_sides_is_added_and_falls_with_the_time_that_a_mean_is_of():
    noise = PodNoise(0.02, 10)

    short, at_five_minutes, at_an_hour = (noise.added_to(0.01, 60, windows)[0] for windows in (4, BLOCK_WINDOWS, 240))

    assert short == at_five_minutes == pytest.approx((0.0001 + 0.04) ** 0.5)
    assert at_an_hour == pytest.approx((0.0001 + 0.04 / 12) ** 0.5)
    assert noise.added_to(0.01, 60, 4)[1] == pytest.approx(10, rel=0.02), "nearly all of it is the noise's"
    assert NO_NOISE.added_to(0.3, 17, 4) == (0.3, 17)


def test_a_few_blocks_of_windows_are_taken_together_with_what_the_champions_wandering_explains():
    known = PodNoise(0.0, 13, moderates=True)

    few, many = known.moderated(3.0, 12, 1.0), known.moderated(3.0, 59, 1.0)

    assert few[0] ** 2 == pytest.approx((12 * 9 + 12 * 1) / 24), "it counts as much as the blocks at most"
    assert many[0] ** 2 == pytest.approx((59 * 9 + 13 * 1) / 72), "and by no more degrees of freedom than it has"
    assert (few[1], many[1]) == (24, 72)
    assert known.moderated(1.0, 12, 3.0)[0] == pytest.approx(few[0]), "it makes a variance larger as well"
    assert PodNoise(0.0, 13).moderated(3.0, 12, 1.0) == (3.0, 12), "verdicts of before do without"


def test_windows_are_put_into_blocks_by_the_clock_and_one_that_has_begun_late_is_left_out():
    starts = 15 * np.arange(5, 5 + 3 * BLOCK_WINDOWS)
    ones = np.ones(len(starts))

    found = blocks_of(starts, ones, 2 * ones, 3 * ones)

    assert found.number.tolist() == [15.0, 20.0, 20.0]  # 5 windows of the last block are too few
    assert (found.total / found.number).tolist() == [2.0, 2.0, 2.0]
    assert BLOCK_SECONDS == 15 * BLOCK_WINDOWS
    assert len(blocks_of(starts[:0], ones[:0], ones[:0], ones[:0]).number) == 0
