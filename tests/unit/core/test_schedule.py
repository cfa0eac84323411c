"""The grid on which a job runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.schedule import next_run

anchors = st.floats(0, 2e9)
intervals = st.floats(0.01, 86_400)
delays = st.floats(0, 1e7)


@given(anchors, intervals, delays)
def test_the_next_run_is_after_now_and_at_most_one_interval_away(anchor, interval, delay):
    now = anchor + delay

    due = next_run(anchor, interval, now)

    assert now < due <= now + interval * (1 + 1e-9) + 1e-6


@given(anchors, intervals, delays)
def test_every_run_is_on_the_grid(anchor, interval, delay):
    due = next_run(anchor, interval, anchor + delay)

    runs = (due - anchor) / interval
    assert runs == pytest.approx(round(runs), abs=1e-6 / interval + 1e-6)


@given(st.integers(1, 600), st.lists(st.floats(0, 0.99), min_size=1, max_size=50))
def test_however_long_runs_take_within_their_interval_the_schedule_does_not_drift(interval, shares):
    due = 1_000.0

    for share in shares:
        due = next_run(1_000.0, interval, due + share * interval)

    assert due == 1_000.0 + len(shares) * interval


def test_runs_that_were_missed_are_skipped_and_not_made_up_for():
    assert next_run(100.0, 5.0, 117.5) == 120.0
    assert next_run(100.0, 5.0, 120.0) == 125.0


@given(intervals, delays)
def test_before_the_first_run_that_one_is_next(interval, delay):
    assert next_run(1e8, interval, 1e8 - delay - 1) == 1e8


@given(anchors, intervals, delays)
def test_after_a_grid_time_comes_the_one_that_follows_it_and_never_itself(anchor, interval, delay):
    due = next_run(anchor, interval, anchor + delay)

    assert next_run(anchor, interval, due) - due == pytest.approx(interval, abs=1e-6)


def test_a_quotient_that_is_rounded_down_does_not_repeat_a_run():
    due = 1.0 + 2 * 0.1
    assert (due - 1.0) / 0.1 < 2

    assert next_run(1.0, 0.1, due) == 1.0 + 3 * 0.1
