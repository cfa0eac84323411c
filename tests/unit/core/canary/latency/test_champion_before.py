from dataclasses import replace
from math import log

import pytest
from stats.worlds import PER_MINUTE, Traffic, World, plain

from understudy.core.canary.latency.champion_before import ChampionBefore, champion_before
from understudy.core.routing.policy import Role
from understudy.core.windows.window import Window

SLOW_US = 22_760
"""The 95th percentile of a lognormal latency around 10 ms with a spread of 0.5."""


def an_hour(requests_per_minute: float = 3_000) -> list[Window]:
    world: World = replace(plain(requests_per_minute), has_histograms=True)
    return Traffic(world, 1).windows(0, 60 * PER_MINUTE, 0.0)


def test_the_champions_hour_is_twelve_blocks_of_five_minutes_and_those_without_calls_are_left_out():
    windows = an_hour(333)

    blocks = champion_before(windows, None).blocks

    assert len(blocks) == 12
    assert sum(number for number, _, _ in blocks) == sum(window.answered for window in windows)
    assert blocks[0][1] / blocks[0][0] == pytest.approx(log(10_000), rel=0.01)
    assert champion_before([replace(window, calls=0, errors=0) for window in windows], SLOW_US) == ChampionBefore(
        (), (None, None)
    )


def test_windows_of_other_roles_are_left_out():
    shadows = [replace(window, key=window.key._replace(role=Role.SHADOW)) for window in an_hour(333)]

    assert champion_before(shadows, None) == ChampionBefore()


@pytest.mark.deep
def test_its_percentiles_are_steps_of_twenty_percent_beyond_the_threshold():
    # 1.41 and 2.06 times the 95th percentile, which is 1.2 to the power of 1.9 and 4.
    assert champion_before(an_hour(), SLOW_US).tail_steps == (2, 4)


@pytest.mark.deep
def test_too_few_answers_do_not_say_which_latency_a_percentile_is():
    windows = an_hour()

    assert champion_before(windows[:30], SLOW_US).tail_steps[1] is None
    assert champion_before(windows[:4], SLOW_US).tail_steps == (None, None)
    assert champion_before(windows, None).tail_steps == ()


@pytest.mark.deep
def test_two_percentiles_at_the_same_step_are_one_test_and_one_beyond_the_last_step_is_none():
    windows = an_hour()

    assert champion_before(windows, 100_000).tail_steps == (1, None)
    assert champion_before(windows, 1_000).tail_steps == (None, None)
