from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stats.worlds import Traffic, World

from understudy.core.canary.analysis import evaluate, judge
from understudy.core.canary.decision import Verdict
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.canary.scores.score_shift import SCORE_SHIFT
from understudy.core.rollout.history import (
    MAX_DECISIONS,
    SCORE_CELLS,
    Course,
    decisions_at,
    latest_moments,
    moments_between,
    past_calls_per_second,
    requests_by_stage,
    rows_of,
    score_distributions,
    scores_by_role,
    stage_at,
)
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.strata import stratify
from understudy.core.windows.window import WINDOW_SECONDS, Window, WindowKey

SECOND_STAGE = 300.0
STAGE = Stage("fraud", "42", 1, (0.0, SECOND_STAGE), 3, 50.0, {1: 25.0})
LIMITS = (CanaryPolicy(dwell_seconds=300, detectable_ratio=5), CanaryPolicy(dwell_seconds=600, detectable_ratio=5))
COURSE = Course(STAGE, LIMITS, (25.0, 50.0))
BAD = World("bad", requests_per_minute=2_000, error_rate=0.02, error_factor=4.0)
WINDOWS = Traffic(BAD, 1).windows(0, 40, 25.0)
STRATA = stratify(WINDOWS, 1)


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_moments_are_few_in_order_a_window_apart_and_end_with_the_last(first, length):
    last = first + length

    found = moments_between(first, last)

    assert 1 <= len(found) <= MAX_DECISIONS
    assert found[-1] == last
    assert all(later - earlier >= WINDOW_SECONDS * 0.99 for earlier, later in pairwise(found))


@given(st.floats(100, 1e6), st.floats(0, 1e6))
def test_the_latest_moments_are_ends_of_windows_and_now(now, since):
    *ends, last = latest_moments(now, 30, since)

    assert last == now
    assert len(ends) <= 29
    assert all(end % WINDOW_SECONDS == 0 and since < end < now for end in ends)
    assert set(ends[-28:]) <= set(latest_moments(now + 1, 30, since))


@pytest.mark.deep
def test_each_look_of_the_past_is_what_was_seen_then():
    moments = moments_between(20.0, 605.0, 10)

    decisions = decisions_at(STRATA, COURSE, moments)

    for one in decisions:
        had_ended = [w for w in WINDOWS if w.key.start + WINDOW_SECONDS <= one.at - LIMITS[0].watermark_seconds]
        limits, stage = stage_at(COURSE, one.at)
        assert one.decision == evaluate(had_ended, limits, stage, one.at)
    assert decisions[-1].decision.verdict is Verdict.ROLL_BACK


def test_a_look_at_the_moment_of_a_step_is_still_of_the_step_before():
    before, after = stage_at(COURSE, SECOND_STAGE), stage_at(COURSE, SECOND_STAGE + 0.1)

    assert before == (LIMITS[0], replace(STAGE, starts=(0.0,), weight_percent=25.0))
    assert after == (LIMITS[1], STAGE)
    assert stage_at(COURSE, 0.0)[1].starts == (0.0,)


def test_a_check_over_time_has_one_row_a_look_and_an_absent_one_none():
    decisions = decisions_at(STRATA, COURSE, [100.0, 200.0])

    rows = rows_of(decisions, ERROR_RATE)

    assert [at for at, _ in rows] == [100.0, 200.0]
    assert rows[1][1] in judge(STRATA, *stage_at(COURSE, 200.0), 200.0).evidence
    assert rows_of(decisions, SCORE_SHIFT) == []


def test_requests_are_counted_in_the_stage_that_they_came_in():
    calls = STRATA.challenger["calls"]

    first, second = requests_by_stage(STRATA, STAGE.starts)

    assert first == calls[: int(SECOND_STAGE) // WINDOW_SECONDS].sum()
    assert first + second == calls.sum()
    assert requests_by_stage(stratify([], 1), STAGE.starts) == [0, 0]
    assert requests_by_stage(STRATA, ()) == []


def test_a_window_that_is_not_judged_yet_is_not_counted():
    calls, end = STRATA.challenger["calls"], float(STRATA.starts[-1]) + WINDOW_SECONDS

    assert sum(requests_by_stage(STRATA, STAGE.starts, end)) == calls.sum()
    assert sum(requests_by_stage(STRATA, STAGE.starts, end - 1)) == calls[:-1].sum()


def a_window(role: Role, start: int = 0, scores: tuple[float, ...] = (), volume: int = 0) -> Window:
    key = WindowKey("worker", 0, 1, role, 1, 1, start)
    return Window(key, volume=volume, scores=Histogram.of(scores))


def test_scores_of_both_sides_lie_in_common_cells_and_none_is_lost():
    windows = [a_window(Role.CHAMPION, scores=(0.0, 0.3, 0.31)), a_window(Role.CHALLENGER, scores=(0.99, 0.3))]

    found = score_distributions(scores_by_role(windows))

    assert found is not None
    assert (found.edges[0], found.edges[-1], len(found.edges)) == (0.0, 1.0, SCORE_CELLS + 1)
    assert (sum(found.champion), sum(found.challenger)) == (3, 2)
    assert found.champion[0] == 1
    assert found.challenger[-1] == 1
    assert score_distributions(scores_by_role(windows[:1])) is None


@pytest.mark.parametrize("scores", [(5.0, 5.0), (-1e6, 0.5, 1e9)])
def test_scores_without_bounds_lie_in_cells_as_well(scores):
    found = score_distributions(
        scores_by_role([a_window(role, scores=scores) for role in (Role.CHAMPION, Role.CHALLENGER)])
    )

    assert found is not None
    assert sum(found.champion) == len(scores)
    assert list(found.edges) == sorted(found.edges)


def test_calls_a_second_are_of_whole_windows_between_two_moments_without_the_shadows():
    windows = [a_window(Role.CHAMPION, start, volume=150) for start in (0, 15, 30, 45)]
    windows += [a_window(Role.CHALLENGER, 15, volume=30), a_window(Role.SHADOW, 15, volume=999)]

    found = past_calls_per_second(windows, 15.0, 45.0)

    assert found == {Role.CHAMPION: 10.0, Role.CHALLENGER: 1.0}
