"""A mean score that has moved: what is beyond doubt, and in which words."""

from dataclasses import replace

import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.core.canary.scores.moved_scores import MIN_ENTITIES, move_words, score_move
from understudy.core.windows.strata import Strata, stratify

EQUAL = World("equal", 2_000, entities=20_000, has_scores=True, own_scores=True)
"""Scores lie around 0.3 with a standard deviation of 0.1."""


def an_hour(world: World, minutes: int = 60, weight_percent: float = 10.0) -> Strata:
    return stratify(Traffic(world, 1).windows(0, minutes * PER_MINUTE, weight_percent), ROLLOUT)


@pytest.mark.deep
@pytest.mark.parametrize(("shift", "sign"), [(0.03, "+0.3"), (-0.03, "-0.3")])
def test_a_mean_that_has_moved_by_three_tenths_of_a_deviation_is_beyond_doubt_on_either_side(shift, sign):
    move = score_move(an_hour(replace(EQUAL, score_shift=shift)), [0.0], 5)

    assert move is not None
    assert move.is_beyond_doubt
    assert move.change_low < move.change < move.change_high
    words = move_words(move)
    assert words.startswith("its mean score is 0.3" if shift > 0 else "its mean score is 0.27")
    assert f"{sign}" in words
    assert words.endswith("the limit is 0.1")


@pytest.mark.parametrize("shift", [0.0, 0.01])
def test_a_mean_that_may_be_within_the_margin_says_nothing(shift):
    move = score_move(an_hour(replace(EQUAL, score_shift=shift), minutes=30), [0.0], 5)

    assert move is not None
    assert not move.is_beyond_doubt
    assert move_words(move) == ""


def test_a_few_entities_say_nothing():
    few = an_hour(replace(EQUAL, entities=MIN_ENTITIES, score_shift=0.3), minutes=10)

    assert few.arrivals.challenger_entities < MIN_ENTITIES
    assert score_move(few, [0.0], 5) is None
    assert move_words(None) == ""


def test_a_champion_with_one_score_for_all_has_no_deviation_to_measure_in():
    windows = Traffic(replace(EQUAL, score_shift=0.3), 1).windows(0, 40, 10.0)
    same = [replace(window, score_squares=0) for window in windows]

    assert score_move(stratify(same, ROLLOUT), [0.0], 5) is None


def test_a_version_without_scores_is_not_compared():
    assert score_move(an_hour(replace(EQUAL, has_scores=False), minutes=10), [0.0], 5) is None
