"""One score for all calls: when it is one, how sure that takes, and what does not count as one."""

from dataclasses import replace

import numpy as np
import orjson
import pytest

from understudy.core.canary.scores.constant_scores import (
    LiveScores,
    constant_words,
    live_scores,
    live_scores_from_json,
    live_scores_to_json,
    varies,
)
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import GAMMA, MIN_SIZE, Histogram
from understudy.core.windows.window import BucketColumn, Window, WindowKey, no_buckets

CHAMPION = Histogram.of(np.random.default_rng(83).beta(2, 5, 2_000).tolist())
CONSTANT = LiveScores(CHAMPION, Histogram.of([0.42] * 30), 8)


def test_one_score_for_all_is_said_with_both_sides_figures():
    assert constant_words(CONSTANT) == (
        "it gave 30 calls of at least 8 entities the same score, about 0.42; of the champion's nine in ten lie from "
        "0.069 to 0.57"
    )


def test_a_constant_on_the_border_of_two_cells_is_constant_though_it_is_rounded_either_way():
    border = MIN_SIZE * GAMMA**1_000

    found = CONSTANT._replace(challenger=Histogram.of([border * (1 - 1e-7), border * (1 + 1e-7)] * 20))

    assert len(found.challenger.counts) == 2
    assert constant_words(found)
    assert not varies(found)


@pytest.mark.parametrize(
    "scores",
    [
        CONSTANT._replace(challenger=Histogram.of([0.42] * 30 + [0.5])),
        CONSTANT._replace(challenger=Histogram()),
        CONSTANT._replace(buckets=4),
        CONSTANT._replace(champion=Histogram.of([0.1, 0.3] * 49)),
        CONSTANT._replace(champion=Histogram.of([0.42] * 2_000)),
    ],
    ids=["another score", "none", "few entities", "few of the champion's", "the champion's are the same"],
)
def test_what_may_be_chance_is_not_said(scores):
    assert constant_words(scores) == ""


def test_of_a_champion_that_mostly_says_no_it_takes_many_entities():
    mostly_no = Histogram.of([0.0] * 800 + [1.0] * 200)

    said = [
        buckets for buckets in range(65) if constant_words(LiveScores(mostly_no, Histogram.of([0.0] * 99), buckets))
    ]

    assert (min(said), max(said)) == (42, 64)


def a_window(role: Role, scores: list[float], bucket: int = 0, rollout_id: int = 1) -> Window:
    buckets = no_buckets()
    buckets[bucket, BucketColumn.SCORE_CALLS] = len(scores)
    return replace(Window(WindowKey("a", 0, 1, role, rollout_id, 1, 0)), scores=Histogram.of(scores), buckets=buckets)


def test_scores_of_shadows_and_of_other_rollouts_are_left_out_and_entities_counted_by_bucket():
    windows = [
        a_window(Role.CHAMPION, [0.1, 0.2]),
        a_window(Role.CHALLENGER, [0.3], bucket=3),
        a_window(Role.CHALLENGER, [0.3, 0.3], bucket=3),
        a_window(Role.CHALLENGER, [0.4], bucket=9),
        a_window(Role.SHADOW, [0.9], bucket=11),
        a_window(Role.CHALLENGER, [0.9], bucket=12, rollout_id=2),
    ]

    found = live_scores(windows, 1)

    assert found == LiveScores(Histogram.of([0.1, 0.2]), Histogram.of([0.3, 0.3, 0.3, 0.4]), 2)
    assert varies(found)


def test_what_is_stored_is_judged_again_to_the_same():
    stored = orjson.loads(orjson.dumps(live_scores_to_json(CONSTANT)))

    assert live_scores_from_json(stored) == CONSTANT
    assert stored["words"] == constant_words(CONSTANT)


@pytest.mark.parametrize(
    "damaged", [{"champion": [1]}, {"champion": [1, -1]}, {"challenger": ["a", 1]}, {"buckets": "x"}]
)
def test_what_another_hand_has_written_there_is_not_judged(damaged):
    with pytest.raises((LookupError, TypeError, ValueError)):
        live_scores_from_json({**live_scores_to_json(CONSTANT), **damaged})
