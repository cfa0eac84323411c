"""A glance at the last two minutes: what it sees at once, and how seldom it asks for an analysis of equal versions."""

from dataclasses import replace

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World, diurnal, plain, wandering_pods

from understudy.core.canary.glance import GLANCE_SECONDS, looks_worse
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.windows.strata import Strata, stratify
from understudy.core.windows.window import WINDOW_SECONDS

POLICY = CanaryPolicy()
VOLUME = 333
HOUR = 60 * PER_MINUTE
ONSET_MINUTE = 50


def an_hour(world: World, seed: int = 1) -> Strata:
    return stratify(Traffic(world, seed).windows(0, HOUR, 10.0), ROLLOUT)


@pytest.mark.deep
@pytest.mark.parametrize(
    "world", [plain(VOLUME), diurnal(VOLUME), wandering_pods(VOLUME, 0.2)], ids=lambda one: one.name
)
def test_equal_versions_are_hardly_ever_worth_an_analysis_out_of_turn(world):
    hours = [an_hour(world, seed) for seed in range(4)]

    glances = [looks_worse(hour, POLICY, float(now)) for hour in hours for now in range(180, 3_600, 30)]

    assert sum(glances) <= 0.05 * len(glances)


@pytest.mark.parametrize(
    "wrong",
    [{"error_factor": 1e6}, {"error_factor": 100.0}, {"latency_factor": 3.0}, {"latency_factor": 10.0}],
    ids=str,
)
def test_what_turns_bad_is_seen_within_its_first_minute_and_a_half(wrong):
    strata = an_hour(replace(plain(VOLUME), onset_minute=ONSET_MINUTE, **wrong))
    onset = 60.0 * ONSET_MINUTE

    assert not looks_worse(strata, POLICY, onset - 1)
    assert any(looks_worse(strata, POLICY, onset + seconds) for seconds in (30, 60, 90))


def test_it_needs_the_windows_of_its_own_minutes_alone():
    strata = an_hour(replace(plain(VOLUME), onset_minute=ONSET_MINUTE, error_factor=1e6))
    now = 60.0 * ONSET_MINUTE + 60

    recent = strata.between(int(now - GLANCE_SECONDS - WINDOW_SECONDS), int(now) + 1)

    assert looks_worse(recent, POLICY, now)
    assert not looks_worse(strata, POLICY, now - 61)


def test_without_any_calls_nothing_looks_worse():
    assert not looks_worse(stratify([], ROLLOUT), POLICY, 3_600.0)
    assert not looks_worse(an_hour(plain(VOLUME)), POLICY, 7_200.0)
