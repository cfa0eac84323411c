"""The bars of training/serving skew: of 20 features three are wrong, and are named within the hour; no other ever is.

Short by default; ``UNDERSTUDY_STATS=full`` takes the 30 days. ``pytest -s`` shows each figure beside its bar.
"""

from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from stats.pieces import IS_FULL, say

from understudy.bootstrap.monitor import SKEW_SECONDS
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.skew.judgement import judge_skew
from understudy.core.drift.skew.pairs import Match
from understudy.core.drift.subject_window import SubjectWindow
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS
from understudy.monitoring.skew_job import AGAIN_SECONDS, SETTLE_SECONDS

pytestmark = pytest.mark.deep
DAYS = 30 if IS_FULL else 4
DAY_SECONDS = 86_400.0
ENTITIES = 3_000
CALLS_A_MINUTE = 60
LOOK_SECONDS = 120.0
LOOKS = (900.0, 1_800.0, 2_700.0, HOUR_SECONDS)
"""Within an hour, where no feature is ever to be named."""
MINUTE = 60.0
PERIODS = {
    "constant": np.inf,
    **{f"daily_{number}": DAY_SECONDS for number in range(5)},
    **{f"hourly_{number}": 3_600.0 for number in range(4)},
    "every_30_minutes": 30 * MINUTE,
    "every_20_minutes": 20 * MINUTE,
    "every_12_minutes": 12 * MINUTE,
    "every_10_minutes": 10 * MINUTE,
    "every_5_minutes": 5 * MINUTE,
    "every_minute": MINUTE,
    "every_20_seconds": 20.0,
}
"""How often each healthy feature of an entity gets another value, each entity at a moment of its own."""
BROKEN = ("other_unit", "stale_by_a_day", "null_for_a_tenth")


class Calls(NamedTuple):
    """The calls of some minutes."""

    at: NDArray[np.float64]
    entity: NDArray[np.int64]

    def before(self, until: float) -> "Calls":
        return Calls(self.at[self.at < until], self.entity[self.at < until])


class World:
    """A feature store of 20 features, and what calls are served of it."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        weights = 1 / np.arange(1, ENTITIES + 1) ** 0.6
        self.popularity = weights / weights.sum()
        self.homes = self.random.integers(0, ANALYSIS_BUCKETS, ENTITIES)
        self.phases = {name: self.random.random(ENTITIES) for name in (*PERIODS, *BROKEN)}
        self.is_null = self.random.random(ENTITIES) < 0.1

    def calls(self, start: float, minutes: int) -> Calls:
        number = self.random.poisson(CALLS_A_MINUTE * minutes)
        entities = self.random.choice(ENTITIES, number, p=self.popularity)
        return Calls(start + MINUTE * minutes * np.sort(self.random.random(number)), entities)

    def window(self, name: str, calls: Calls, start: float, *, is_broken: bool) -> SubjectWindow:
        """Return the window of a feature, as the monitor's job counts it."""
        period = PERIODS.get(name, DAY_SECONDS)
        asked = calls.at + self.random.uniform(SETTLE_SECONDS, SETTLE_SECONDS + SKEW_SECONDS, calls.at.size)
        served = self._value(name, calls, calls.at, period)
        missing = np.zeros(calls.at.size, np.bool_)
        if is_broken and name == "stale_by_a_day":
            served = self._value(name, calls, calls.at - DAY_SECONDS, period)
        if is_broken and name == "other_unit":
            served = served + 0.5
        if is_broken and name == "null_for_a_tenth":
            missing = self.is_null[calls.entity]
        stored = self._value(name, calls, asked, period)
        again = self._value(name, calls, asked + AGAIN_SECONDS, period)
        differs = (served != stored) & ~missing
        counts = ~differs | (stored == again)
        return self._counted(start, calls, {Match.DIFFERS: differs & counts, Match.MISSING: missing}, counts)

    def _value(self, name: str, calls: Calls, at: NDArray[np.float64], period: float) -> NDArray[np.float64]:
        if period == np.inf:
            return np.zeros(at.size)
        return np.floor(at / period + self.phases[name][calls.entity])

    def _counted(
        self, start: float, calls: Calls, hits: dict[Match, NDArray[np.bool_]], counts: NDArray[np.bool_]
    ) -> SubjectWindow:
        homes = self.homes[calls.entity]

        def by_bucket(of: NDArray[np.bool_]) -> list[int]:
            found: list[int] = np.bincount(homes[of], minlength=ANALYSIS_BUCKETS).tolist()
            return found

        same = counts & ~hits[Match.DIFFERS] & ~hits[Match.MISSING]
        categories = {match.value: by_bucket(of) for match, of in {**hits, Match.SAME: same}.items()}
        return SubjectWindow(start, by_bucket(counts), categories=categories)


def test_of_twenty_features_the_three_that_are_wrong_are_named_within_the_hour():
    worst: dict[str, float] = {}
    for seed in range(10 if IS_FULL else 2):
        world = World(seed)
        start = 9 * HOUR_SECONDS
        before: dict[str, list[SubjectWindow]] = {name: [] for name in BROKEN}
        for hour in range(9):
            calls = world.calls(hour * HOUR_SECONDS, 60)
            for name in BROKEN:
                before[name].append(world.window(name, calls, hour * HOUR_SECONDS, is_broken=False))
        for name in BROKEN:
            minutes = minutes_to_name(world, name, before[name], start)
            worst[name] = max(worst.get(name, 0.0), minutes)

    say("skew: minutes until it is named, slowest (bar 60)", str(worst))
    assert max(worst.values()) <= 60


def minutes_to_name(world: World, name: str, before: list[SubjectWindow], start: float) -> float:
    """Return after how many minutes of an hour a feature is named, its values that differ a quarter of an hour late."""
    calls = world.calls(start, 60)
    for look in np.arange(LOOK_SECONDS, HOUR_SECONDS + 1, LOOK_SECONDS):
        # Of the last minutes what differs has not been asked for again; those that are alike or missing count at once.
        known_until = start + look - SKEW_SECONDS - (0 if name == "null_for_a_tenth" else AGAIN_SECONDS)
        window = world.window(name, calls.before(known_until), start, is_broken=True)
        if judge_skew(name, [*before, window], start + look).is_skewed:
            return float(look / MINUTE)
    return np.inf


@pytest.mark.parametrize("name", PERIODS)
def test_a_feature_that_is_right_is_never_named_however_often_it_moves(name):
    """Looked at each quarter of an hour, with the hour that is under way: the monitor looks every two minutes."""
    world, named, looks, largest = World(11 + list(PERIODS).index(name)), [], 0, 0.0
    kept: list[SubjectWindow] = []
    for hour in range(24 * DAYS):
        start = hour * HOUR_SECONDS
        calls = world.calls(start, 60)
        for look in LOOKS:
            so_far = world.window(name, calls.before(start + look), start, is_broken=False)
            found = judge_skew(name, [*kept, so_far], start + look)
            largest = max(largest, found.skewed_ratio if hour > 24 else 0.0)
            looks += 1
            if found.is_skewed:
                named.append(start + look)
        kept = [*kept[-70:], so_far]

    say(f"skew: {name}, named in {looks:,} looks of {DAYS} days (bar 0)", str(len(named)))
    say("skew: largest share of calls that a day's own movement gives (limit 3 %)", f"{largest:.2%}")
    assert not named
