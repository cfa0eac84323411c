"""The watch over a new champion: what it takes as its control, and how often."""

from dataclasses import replace

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.canary.decision import CheckState
from understudy.core.canary.errors.error_rate import ERROR_RATE
from understudy.core.canary.latency.slow_tail import SLOW_TAIL
from understudy.core.canary.limits import Stage
from understudy.core.canary.post_promotion import REMEMBERED_WINDOWS, judge_watch, past_of, watch_of
from understudy.core.routing.policy import Role
from understudy.core.windows.window import Window

PROMOTED_AT = 600.0
STAGE = Stage("fraud", "42", ROLLOUT, (0.0, PROMOTED_AT), 2, 100.0, {1: 50.0})
CHAMPION, CHALLENGER = 0, 1


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    traffic = Traffic(World("alike", error_rate=0.05, entities=5_000), 1)
    before = traffic.windows(0, 10 * PER_MINUTE, 50.0, 1)
    return [*before, *traffic.windows(10 * PER_MINUTE, 30 * PER_MINUTE, 100.0, 2)]


def of_the_champion(windows: list[Window]) -> list[Window]:
    return [w for w in windows if w.key.model_version_id == CHAMPION and w.key.start < PROMOTED_AT]


@pytest.mark.parametrize("minutes", [3, 10, 11, 30])
def test_each_window_of_the_old_champion_counts_once_and_each_of_the_new_one_too(windows, minutes):
    now = PROMOTED_AT + 60 * minutes
    seen = [window for window in windows if window.key.start < now]

    watch = watch_of(past_of(seen, STAGE, CHAMPION), seen, STAGE, CHALLENGER, now + 5)

    newest = of_the_champion(windows)[-4 * minutes :]
    new = [w for w in seen if w.key.model_version_id == CHALLENGER and w.key.start >= PROMOTED_AT]
    assert watch is not None
    row = judge_watch(watch, now + 5).evidence[0]
    assert row.champion_requests == sum(window.calls for window in newest)
    assert row.challenger_requests == sum(window.calls for window in new)


def test_a_past_without_a_threshold_says_nothing_of_slow_answers(windows):
    outside = [replace(w, key=w.key._replace(rollout_id=0)) for w in of_the_champion(windows)]
    after = [window for window in windows if window.key.start >= PROMOTED_AT]
    now = PROMOTED_AT + 1_805

    watch = watch_of(past_of(outside, STAGE, CHAMPION), after, STAGE, CHALLENGER, now)

    assert watch is not None
    states = {row.check: (row.state, row.champion) for row in judge_watch(watch, now).evidence}
    assert states[SLOW_TAIL] == (CheckState.TOO_EARLY, 0.0)
    assert states[ERROR_RATE][0] is CheckState.OK


def test_a_champion_that_nobody_called_before_says_nothing(windows):
    after = [window for window in windows if window.key.start >= PROMOTED_AT]

    assert watch_of(past_of(after, STAGE, CHAMPION), after, STAGE, CHALLENGER, 2_400.0) is None


def test_a_past_is_of_the_champion_in_its_role_and_no_longer_than_an_hour(windows):
    (one, *_) = of_the_champion(windows)
    before = [replace(one, key=one.key._replace(start=-15 * number)) for number in range(1, 300)]
    as_shadow = [replace(w, key=w.key._replace(role=Role.SHADOW, start=w.key.start + 15)) for w in before]

    past = past_of([*before, *as_shadow], STAGE, CHAMPION)

    assert past.side["calls"].tolist() == [float(one.calls)] * REMEMBERED_WINDOWS
