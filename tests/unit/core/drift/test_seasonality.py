import numpy as np
import pytest

from understudy.core.drift.seasonality import seasons_of

HOUR = 3_600.0
WEEK = 168


def a_week_shape(weeks: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return start, rows and mean of each hour, the same in every week."""
    hours = np.arange(int(weeks * WEEK))
    rows = 100.0 + 50 * np.sin(2 * np.pi * hours / 24)
    return hours * HOUR, rows, np.cos(2 * np.pi * hours / WEEK)[:, None]


@pytest.mark.parametrize("level", [-5.0, 0.0, 0.3])
def test_what_repeats_every_week_is_taken_off_and_the_level_is_not(level):
    starts, rows, means = a_week_shape(4)

    found = seasons_of(starts, rows, means + level)

    weekly_level = np.average(means[:WEEK, 0], weights=rows[:WEEK])
    last = found.offsets[2 * WEEK :, 0]
    assert means[2 * WEEK :, 0] - last == pytest.approx(np.full(last.shape, weekly_level), abs=1e-9)


def test_a_step_up_stays_a_step_for_weeks():
    starts, rows, means = a_week_shape(8)
    stepped = means + (np.arange(len(means)) >= 2 * WEEK)[:, None]

    offsets = seasons_of(starts, rows, stepped).offsets

    # From the third week after the step on, most earlier weeks are on one level.
    late = slice(7 * WEEK, 8 * WEEK)
    weekly_level = np.average(means[:WEEK, 0], weights=rows[:WEEK])
    assert (stepped - offsets)[late, 0] == pytest.approx(np.full(WEEK, 1 + weekly_level), abs=1e-9)


def test_it_takes_a_week_and_a_half_to_know_an_hour():
    starts, rows, means = a_week_shape(3)

    found = seasons_of(starts, rows, means)

    assert not found.offsets[: WEEK * 3 // 2].any()
    assert (found.inflation[: WEEK * 3 // 2] == 1).all()
    assert (found.inflation[WEEK * 3 // 2 :] > 1).all()


def test_the_more_weeks_the_less_the_comparison_costs():
    starts, rows, means = a_week_shape(8)

    inflation = seasons_of(starts, rows, means).inflation

    assert (np.diff(inflation[WEEK * 3 // 2 :]) <= 0).all()
    assert inflation[-1] == pytest.approx(1 + np.pi / 8)


def test_one_bad_week_of_four_does_not_move_the_median():
    starts, rows, means = a_week_shape(6)
    bad = means.copy()
    bad[3 * WEEK + 10 : 3 * WEEK + 20] += 100

    found, clean = seasons_of(starts, rows, bad).offsets, seasons_of(starts, rows, means).offsets

    same_hours = slice(5 * WEEK + 10, 5 * WEEK + 20)
    # The incident of 100 itself is gone; the level of its week is 100 · 10 hours of 168 higher, at most twice that.
    assert np.abs(found - clean)[same_hours].max() < 12


def test_an_hour_without_traffic_a_week_ago_is_unknown():
    starts, rows, means = a_week_shape(2)
    gap = 100
    kept = np.arange(len(rows)) != gap

    inflation = seasons_of(starts[kept], rows[kept], means[kept]).inflation

    places = [int(np.flatnonzero(starts[kept] == hour * HOUR).item()) for hour in (gap + WEEK, gap + WEEK + 1)]
    assert inflation[places[0]] == 1
    assert inflation[places[1]] > 1
