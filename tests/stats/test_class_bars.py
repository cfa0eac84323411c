"""The bars of class shares: three classes whose shares move by five points are found; shares that stay never are.

Short by default; ``UNDERSTUDY_STATS=full`` makes more runs. ``pytest -s`` shows each figure beside its bar.
"""

from statistics import median

import numpy as np
import pytest
from stats.pieces import IS_FULL, say

from understudy.core.drift.baseline import CategoricalBaseline
from understudy.core.drift.beside_champion import judge_beside_champion
from understudy.core.drift.detector import judge_drift
from understudy.core.drift.hours import HOUR_SECONDS, class_hour
from understudy.core.drift.limits import DEFAULT_POLICY
from understudy.core.drift.report import DriftState
from understudy.core.drift.subject_window import CLASSES, SubjectWindow
from understudy.core.drift.version_drift import class_policy

pytestmark = pytest.mark.deep
POLICY = class_policy(DEFAULT_POLICY)
NAMES = ("basic", "plus", "pro")
SHARES = np.array([0.5, 0.3, 0.2])
MOVED = np.array([0.5, 0.25, 0.25])
ENTITIES = 1_000
CALLS_AN_ENTITY = 4
BASELINE = CategoricalBaseline(dict(zip(NAMES, SHARES.tolist(), strict=True)), rows=40_000, null_ratio=0.0)


def hour(random: np.random.Generator, start: int, shares: np.ndarray, entities: int = ENTITIES) -> SubjectWindow:
    """Return an hour of entities, each of which gets one class in all of its calls but one in five."""
    own = random.choice(3, entities, p=shares)
    ids = random.integers(0, 100_000, entities)
    answered = []
    for _ in range(CALLS_AN_ENTITY):
        classes = np.where(random.random(entities) < 0.2, random.choice(3, entities, p=shares), own)
        answered += [(f"user-{one}", NAMES[place]) for one, place in zip(ids.tolist(), classes.tolist(), strict=True)]
    return class_hour(start * HOUR_SECONDS, answered)


def test_shares_that_stay_are_never_called_a_drift():
    count, runs = (2_000, 5) if IS_FULL else (200, 1)
    drifts = 0
    for seed in range(runs):
        random = np.random.default_rng(seed)
        windows = [hour(random, place, SHARES) for place in range(count)]
        looks = range(24, count + 1, 24)
        found = [judge_drift(CLASSES, BASELINE, windows[max(0, end - 336) : end], POLICY) for end in looks]
        drifts += sum(one.state is DriftState.DRIFT for one in found)

    say(f"classes: drifts in {runs} x {count:,} hours of equal shares, a look a day (bar 0)", str(drifts))
    assert drifts == 0


def test_five_points_are_found_within_a_day_as_a_drift():
    delays = []
    for seed in range(40 if IS_FULL else 6):
        random = np.random.default_rng((seed, 7))
        windows = [hour(random, place, SHARES) for place in range(24)]
        for delay in range(1, 49):
            windows.append(hour(random, 23 + delay, MOVED))
            found = judge_drift(CLASSES, BASELINE, windows, POLICY)
            if found.state is DriftState.DRIFT:
                delays.append(delay)
                break

    say("classes: hours until five points are found, median (bar 12), slowest (bar 24)", f"{delays}")
    assert len(delays) == (40 if IS_FULL else 6)
    assert median(delays) <= 12
    assert max(delays) <= 24


@pytest.mark.parametrize("is_moved", [False, True])
def test_five_points_beside_the_champion_are_found_and_equal_shares_are_not(is_moved):
    runs = (60 if is_moved else 300) if IS_FULL else (6 if is_moved else 12)
    found = []
    for seed in range(runs):
        random = np.random.default_rng((seed, 3))
        champion = [hour(random, place, SHARES) for place in range(48)]
        challenger = [hour(random, place, MOVED if is_moved else SHARES, ENTITIES // 2) for place in range(48)]
        ends = (
            end
            for end in range(3, 49, 3)
            if judge_beside_champion(CLASSES, champion[:end], challenger[:end], POLICY, alpha=0.01, since=0.0)
        )
        found.append(next(ends, None))

    known = [end for end in found if end is not None]
    if is_moved:
        say("classes beside the champion: hours until five points are found, median (bar 24)", f"{found}")
        assert len(known) == runs
        assert median(known) <= 24
    else:
        say(f"classes beside the champion: equal ones said to drift in {runs} (bar 1 %)", str(len(known)))
        assert len(known) <= 0.01 * runs


TWENTY = tuple(f"class-{number}" for number in range(20))


def answered(random: np.random.Generator, rows: int) -> list[tuple[str, str | None]]:
    """Return answers of an hour with twenty classes of five percent, each of another entity."""
    ids, places = random.integers(0, 1_000_000, rows), random.integers(0, len(TWENTY), rows)
    return [(f"user-{one}", TWENTY[place]) for one, place in zip(ids.tolist(), places.tolist(), strict=True)]


def test_a_challenger_of_few_answers_and_many_classes_is_not_said_to_lack_some():
    """Of the answers of such an hour each class has two or three, and hardly ever from three analysis buckets."""
    runs = 60 if IS_FULL else 6
    unlike = 0
    for seed in range(runs):
        random = np.random.default_rng((seed, 5))
        champion = [class_hour(place * HOUR_SECONDS, answered(random, 4_000)) for place in range(72)]
        known = set(champion[0].categories)
        challenger = [class_hour(place * HOUR_SECONDS, answered(random, 50), known) for place in range(72)]
        unlike += any(
            judge_beside_champion(CLASSES, champion[:end], challenger[:end], POLICY, alpha=0.01, since=0.0)
            for end in range(3, 73, 3)
        )

    say(f"classes: 50 answers an hour in twenty classes, equal ones said to drift in {runs} (bar 1 %)", str(unlike))
    assert unlike <= 0.01 * runs
