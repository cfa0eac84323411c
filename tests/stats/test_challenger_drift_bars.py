"""The bars of a challenger beside the champion's hours: equal versions are not said to drift, a worse one soon is.

Short by default; ``UNDERSTUDY_STATS=full`` makes more runs. ``pytest -s`` shows each figure beside its bar.
"""

import os
import sys
from statistics import median

import numpy as np
import pytest

from understudy.core.drift.beside_champion import judge_beside_champion
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.limits import DEFAULT_POLICY
from understudy.core.drift.subject_window import SubjectWindow, numeric_window
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

FULL = os.environ.get("UNDERSTUDY_STATS") == "full"
HOURS = 48
ENTITIES = 4_000
ROWS_AN_ENTITY = 3
SHARES = (0.02, 0.05, 0.1, 0.25, 0.5)


def rollout(seed: int, shift: float, *, entity_spread: float) -> tuple[list[SubjectWindow], list[SubjectWindow]]:
    """Return two days of both sides: a ramp, a daily wave, and entities that keep a level of their own."""
    random = np.random.default_rng(seed)
    homes = random.integers(0, ANALYSIS_BUCKETS, ENTITIES)
    levels = random.normal(0.0, entity_spread, ENTITIES)
    places = random.random(ENTITIES)
    champion, challenger = [], []
    for hour in range(HOURS):
        share = SHARES[min(hour * len(SHARES) // HOURS, len(SHARES) - 1)]
        wave = 0.5 * np.sin(hour * np.pi / 12)
        came = np.flatnonzero(random.random(ENTITIES) < 0.3 * (1.2 + wave))
        rows = np.repeat(came, random.poisson(ROWS_AN_ENTITY, len(came)) + 1)
        values = wave + levels[rows] + random.normal(0.0, 1.0, len(rows))
        own = places[rows] < share
        champion.append(numeric_window(hour * HOUR_SECONDS, values[~own], homes[rows[~own]]))
        challenger.append(numeric_window(hour * HOUR_SECONDS, values[own] + shift, homes[rows[own]]))
    return champion, challenger


def hour_found(seed: int, shift: float, entity_spread: float, subjects: int = 1) -> int | None:
    """Return the hour after which it is found, with a look after each third; ``None``: never."""
    champion, challenger = rollout(seed, shift, entity_spread=entity_spread)
    for end in range(3, HOURS + 1, 3):
        found = judge_beside_champion(
            "score", champion[:end], challenger[:end], DEFAULT_POLICY, alpha=0.01 / subjects, since=0.0
        )
        if found is not None:
            return end
    return None


@pytest.mark.parametrize("entity_spread", [0.0, 0.5])
def test_equal_versions_are_not_said_to_drift(entity_spread):
    runs = 300 if FULL else 20

    found = sum(hour_found(seed, 0.0, entity_spread) is not None for seed in range(runs))

    sys.stdout.write(f"\nequal, entities' own levels {entity_spread:g} sd (bar 1 %): {found} of {runs} drift")
    assert found <= 0.01 * runs


@pytest.mark.parametrize(("shift", "bar"), [(0.5, 12), (1.0, 6)])
def test_a_shift_is_found_within_hours_beside_a_hundred_subjects(shift, bar):
    runs = 60 if FULL else 8

    hours = [hour_found(seed, shift, 0.3, subjects=100) for seed in range(runs)]

    known = [hour for hour in hours if hour is not None]
    sys.stdout.write(f"\nshift of {shift} sd, 1 of 100 subjects (bar {bar} h): median {median(known)} h")
    assert len(known) == len(hours)
    assert median(known) <= bar
