"""Pairs of scores: which of them let a version go on, which ask for a person, and which say nothing."""

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.core.canary.scores.score_agreement import (
    MIN_PAIRS,
    Agreement,
    AgreementState,
    PairSource,
    ScorePairs,
    agreement_to_json,
    judge_agreement,
    pairs_from_json,
    spread_of,
)
from understudy.core.windows.histogram import Histogram

CHAMPION = np.random.default_rng(83).beta(2, 5, 200)
ALIKE, DIFFERENT, UNKNOWN = AgreementState


def judged(challenger: "np.typing.ArrayLike", champion: "np.typing.ArrayLike" = CHAMPION) -> Agreement:
    return judge_agreement(ScorePairs(PairSource.LOG, np.asarray(champion).tolist(), np.asarray(challenger).tolist()))


def test_the_same_order_on_another_scale_is_alike():
    found = judged(100 + 30 * CHAMPION**3)

    assert found.state is ALIKE
    assert found.correlation == pytest.approx(1)
    assert found.words == (
        "rank correlation of its scores with the champion's 1.00 in 200 logged calls that were sent again"
    )


def test_inverted_shuffled_and_constant_scores_are_different_and_say_by_how_much():
    inverted, constant = judged(1 - CHAMPION), judged(np.full(200, 0.42))
    shuffled = judged(np.random.default_rng(1).permutation(CHAMPION))

    assert (inverted.state, shuffled.state, constant.state) == (DIFFERENT,) * 3
    assert "rank correlation -1.00, the limit is 0.5" in inverted.words
    assert constant.correlation is None
    assert constant.words == ("it gives 1 score where the champion gives 200, in 200 logged calls that were sent again")


@pytest.mark.parametrize(("steps", "state"), [(8, DIFFERENT), (12, ALIKE)])
def test_a_version_with_a_handful_of_scores_in_the_champions_order_is_different_and_a_coarse_one_is_alike(steps, state):
    ranks = CHAMPION.argsort().argsort()

    found = judged(ranks * steps // 200)

    assert (found.state, found.challenger_values) == (state, steps)


def test_a_champion_that_hardly_tells_calls_apart_says_nothing():
    usual = np.where(np.arange(200) < 30, 1.0, 0.0)

    assert judged(1 - usual, usual).state is UNKNOWN
    assert "170 of 200 scores of the champion are the same" in judged(1 - usual, usual).words
    assert judged(1 - usual, np.where(np.arange(200) < 50, 1.0, 0.0)).state is DIFFERENT


def test_fewer_than_a_hundred_pairs_say_nothing_and_why():
    few = ScorePairs(PairSource.LOG, [0.1, 0.2], [0.2, 0.1], "198 failed")

    assert judge_agreement(few).state is UNKNOWN
    assert judge_agreement(few).words == (
        "its scores were not compared: 2 of 100 entities have a score of both; 198 failed"
    )
    assert judge_agreement(ScorePairs(PairSource.SHADOW, (), ())).state is UNKNOWN
    assert judged(-CHAMPION[:MIN_PAIRS], CHAMPION[:MIN_PAIRS]).state is DIFFERENT


def test_calls_that_are_alike_for_the_champion_are_not_compared():
    random = np.random.default_rng(1)
    alike = np.quantile(CHAMPION, random.uniform(0.45, 0.55, 200))
    pairs = ScorePairs(PairSource.LOG, alike.tolist(), (alike + random.normal(0, 0.1, 200)).tolist())
    usual = spread_of(Histogram.of(CHAMPION.tolist()))

    found = judge_agreement(pairs._replace(usual_spread=usual))

    assert judge_agreement(pairs).state is DIFFERENT
    assert found.state is UNKNOWN
    assert found.words == (
        "its scores were not compared: the middle half of the champion's scores of 200 logged calls that were sent "
        f"again spreads over {spread_of(Histogram.of(alike.tolist())):.3g}, and over {usual:.3g} in its last day"
    )


@pytest.mark.parametrize("usual", [None, 0.0, 0.2])
def test_calls_that_spread_as_the_champions_do_are_compared(usual):
    pairs = ScorePairs(PairSource.LOG, CHAMPION.tolist(), (1 - CHAMPION).tolist(), usual_spread=usual)

    assert judge_agreement(pairs).state is DIFFERENT


scores = st.floats(-1e300, 1e300, allow_nan=False)


@given(
    st.lists(st.tuples(scores, scores), max_size=200),
    st.sampled_from(PairSource),
    st.text(max_size=30),
    st.none() | st.floats(0, 1e300),
)
def test_what_is_stored_is_judged_again_to_the_same(pairs, source, why_few, usual):
    sides = [one for one, _ in pairs], [other for _, other in pairs]
    found = judge_agreement(ScorePairs(source, *sides, why_few, usual))
    stored = orjson.loads(orjson.dumps(agreement_to_json(found, is_expected=False)))

    assert judge_agreement(pairs_from_json(stored)) == found


@pytest.mark.parametrize(
    "damaged",
    [
        {"pairs": [[1, 2]] * 201},
        {"pairs": [[1]]},
        {"pairs": [[1, None]]},
        {"pairs": None},
        {"source": "rumour"},
        {"usual_spread": "wide"},
    ],
)
def test_what_another_hand_has_written_there_is_not_judged(damaged):
    stored = agreement_to_json(judged(CHAMPION), is_expected=False)

    with pytest.raises((LookupError, TypeError, ValueError)):
        pairs_from_json({**stored, **damaged})
