"""A challenger beside the champion on the same hours: only what moved for one of them is found."""

from collections.abc import Callable

import numpy as np
import pytest

from understudy.core.drift.beside_champion import BesideChampion, beside_from_json, judge_beside_champion
from understudy.core.drift.evidence import Measure
from understudy.core.drift.hours import HOUR_SECONDS
from understudy.core.drift.limits import DEFAULT_POLICY
from understudy.core.drift.subject_window import CLASSES, SubjectWindow, categorical_window, numeric_window
from understudy.core.drift.version_drift import class_policy
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

Draw = Callable[[np.random.Generator, int, int], np.ndarray]


def hours(draw: Draw, rows: int, *, seed: int, count: int = 24, first: int = 0) -> list[SubjectWindow]:
    """Return hours of ``draw(random, hour, rows)``."""
    random = np.random.default_rng(seed)
    found = []
    for hour in range(first, first + count):
        homes = random.integers(0, ANALYSIS_BUCKETS, rows)
        found.append(numeric_window(hour * HOUR_SECONDS, draw(random, hour, rows), homes))
    return found


def judged(champion: list[SubjectWindow], challenger: list[SubjectWindow]) -> BesideChampion | None:
    return judge_beside_champion("score", champion, challenger, DEFAULT_POLICY, alpha=0.01, since=0.0)


def steady(random: np.random.Generator, _hour: int, rows: int) -> np.ndarray:
    return random.normal(0.3, 0.1, rows)


def daily(random: np.random.Generator, hour: int, rows: int) -> np.ndarray:
    return random.normal(0.3 + 0.2 * np.sin(hour / 4), 0.1, rows)


def test_equal_versions_do_not_drift():
    assert judged(hours(steady, 2_000, seed=1), hours(steady, 200, seed=2)) is None


def test_an_input_that_moved_for_both_changes_nothing():
    """The challenger has most of its rows late, when all scores are high."""
    late = [*hours(daily, 50, seed=2, count=12), *hours(daily, 1_500, seed=3, count=12, first=12)]

    assert judged(hours(daily, 2_000, seed=1), late) is None


def test_a_challenger_whose_scores_are_higher_on_the_same_hours_is_found_with_both_sides():
    found = judged(
        hours(daily, 2_000, seed=1), hours(lambda random, hour, rows: daily(random, hour, rows) + 0.2, 200, seed=2)
    )

    assert found is not None
    assert found.challenger == pytest.approx(found.champion + 0.2, abs=0.02)
    assert found.distance > found.limit
    assert "score 0." in found.words
    assert "on the same hours" in found.words
    assert beside_from_json(found.to_json()) == found


@pytest.mark.deep
def test_a_drift_that_begins_late_is_found_from_its_hour_on():
    def broken(random: np.random.Generator, hour: int, rows: int) -> np.ndarray:
        return steady(random, hour, rows) + 0.2 * (hour >= 90)

    found = judged(hours(steady, 2_000, seed=1, count=96), hours(broken, 300, seed=2, count=96))

    assert found is not None
    assert found.since >= 80 * HOUR_SECONDS


def test_a_shape_that_the_mean_does_not_show_is_found():
    found = judged(
        hours(steady, 2_000, seed=1), hours(lambda random, _, rows: random.normal(0.3, 0.3, rows), 300, seed=2)
    )

    assert found is not None
    assert found.measure in {Measure.WASSERSTEIN, Measure.PSI}


def test_a_feature_that_the_challenger_does_not_get_is_found_by_its_nulls():
    def with_nulls(ratio: float) -> Draw:
        return lambda random, hour, rows: np.where(random.random(rows) < ratio, np.nan, steady(random, hour, rows))

    found = judged(hours(with_nulls(0.01), 2_000, seed=1), hours(with_nulls(0.2), 300, seed=2))

    assert found is not None
    assert (found.measure, found.category) == (Measure.NULLS, "null")
    assert found.challenger == pytest.approx(0.2, abs=0.03)


def countries(shares: tuple[float, ...], rows: int, *, seed: int) -> list[SubjectWindow]:
    random = np.random.default_rng(seed)
    found = []
    for hour in range(24):
        homes = random.integers(0, ANALYSIS_BUCKETS, rows)
        names = random.choice(["US", "BR", "DE"], rows, p=shares).tolist()
        found.append(categorical_window(hour * HOUR_SECONDS, names, homes))
    return found


def test_categories_are_compared_by_their_shares():
    champion = countries((0.6, 0.3, 0.1), 2_000, seed=1)

    assert judged(champion, countries((0.6, 0.3, 0.1), 200, seed=2)) is None
    found = judged(champion, countries((0.2, 0.3, 0.5), 200, seed=2))
    assert found is not None
    assert (found.measure, found.category) == (Measure.PSI, "DE")
    assert found.words.startswith("score = DE 0.")


@pytest.mark.parametrize(
    "challenger",
    [[], hours(steady, 5, seed=2), hours(steady, 300, seed=2, first=50), countries((0.6, 0.3, 0.1), 200, seed=2)],
)
def test_nothing_is_said_of_no_rows_few_rows_other_hours_and_other_kinds(challenger):
    assert judged(hours(lambda random, hour, rows: steady(random, hour, rows) + 9, 2_000, seed=1), challenger) is None


def answers(shares: dict[str, float], rows: int, *, seed: int) -> list[SubjectWindow]:
    random = np.random.default_rng(seed)
    found = []
    for hour in range(24):
        homes = random.integers(0, ANALYSIS_BUCKETS, rows)
        names = random.choice(list(shares), rows, p=list(shares.values())).tolist()
        found.append(categorical_window(hour * HOUR_SECONDS, names, homes))
    return found


@pytest.mark.parametrize(
    "renamed", [{"basic": 0.5, "plus": 0.3, "PRO": 0.2}, {"Basic": 0.5, "Plus": 0.3, "Pro": 0.2}, {"pro": 1.0}]
)
def test_a_class_that_the_challenger_alone_answers_with_is_a_difference(renamed):
    limits = class_policy(DEFAULT_POLICY)
    champion = answers({"basic": 0.5, "plus": 0.3, "pro": 0.2}, 2_000, seed=1)

    found = judge_beside_champion(CLASSES, champion, answers(renamed, 200, seed=2), limits, alpha=0.01, since=0.0)

    assert found is not None
    assert found.measure is Measure.SHARES
    assert found.distance >= 0.19
