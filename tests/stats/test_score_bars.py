"""The bars of scores (statistics page), compared at the warm-up and later, through the product's own judgement.

Short by default; ``UNDERSTUDY_STATS=full`` takes the numbers of runs that the page names. ``pytest -s`` shows them.
"""

import os
import sys
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest
from stats.worlds import PER_MINUTE, ROLLOUT, Traffic, World

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.core.canary.scores.constant_scores import constant_words, live_scores, varies
from understudy.core.canary.scores.score_agreement import (
    AgreementState,
    PairSource,
    ScorePairs,
    judge_agreement,
    spread_of,
)
from understudy.core.statistics.rank_tests import rank_correlation
from understudy.core.statistics.sample_size import FloatArray
from understudy.core.windows.histogram import Histogram
from understudy.core.windows.strata import stratify

pytestmark = pytest.mark.timeout(600)
RUNS = 1_500 if os.environ.get("UNDERSTUDY_STATS") == "full" else 300
PAIRS = 200
NORMAL = NormalDist()
Draw = Callable[[np.random.Generator], tuple[FloatArray, FloatArray]]


def correlated(rank: float) -> Draw:
    """Draw normal pairs with this rank correlation. Source: Pearson (1907), r = 2 sin(pi rho / 6)."""
    linear = 2 * np.sin(np.pi * rank / 6)

    def draw(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        champion = random.normal(size=PAIRS)
        return champion, linear * champion + np.sqrt(1 - linear**2) * random.normal(size=PAIRS)

    return draw


def shuffled(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    champion = random.beta(2, 5, PAIRS)
    return champion, random.permutation(champion)


def inverted(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw the inverse of a version that has rank correlation 0.7 itself, around a middle that a histogram keeps."""
    champion, challenger = correlated(0.7)(random)
    return champion, -challenger


def constant(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    return random.beta(2, 5, PAIRS), np.full(PAIRS, random.random())


def binary(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Draw yes and no, a quarter of them yes, of two versions whose correlation is 0.7."""
    share, both = 0.25, 0.7 * 0.25 * 0.75 + 0.25**2
    champion = random.random(PAIRS) < share
    chance = np.where(champion, both / share, (share - both) / (1 - share))
    return champion.astype(np.float64), (random.random(PAIRS) < chance).astype(np.float64)


def held(draw: Draw, runs: int = RUNS) -> int:
    random = np.random.default_rng(83)
    states = (
        judge_agreement(ScorePairs(PairSource.LOG, *(side.tolist() for side in draw(random)))).state
        for _ in range(runs)
    )
    return sum(state is AgreementState.DIFFERENT for state in states)


@pytest.mark.parametrize("draw", [shuffled, inverted, constant])
def test_shuffled_inverted_and_constant_scores_are_held_in_every_run(draw):
    found = held(draw)

    sys.stdout.write(f"\n{draw.__name__}: {found} of {RUNS} held")
    assert found == RUNS


@pytest.mark.parametrize("rank", [1.0, 0.8, 0.7])
def test_a_version_with_a_rank_correlation_of_point_seven_is_held_in_no_run(rank):
    found = held(correlated(rank))

    sys.stdout.write(f"\nrank correlation {rank}: {found} of {RUNS} held")
    assert found == 0


def test_yes_and_no_of_versions_that_correlate_are_hardly_ever_held():
    found = held(binary)

    sys.stdout.write(f"\nyes and no: {found} of {RUNS} held")
    assert found <= RUNS // 300


@pytest.mark.parametrize("share", [0.3, 0.5, 0.6, 0.75, 1.0])
@pytest.mark.parametrize("middle", [0.5, 0.9])
def test_callers_that_send_calls_with_nearly_one_score_hold_no_good_version(share, middle):
    """An attacker's entities are this share of all that are drawn, and lie in a tenth of the champion's scores."""
    usual = spread_of(Histogram.of(NORMAL.inv_cdf((place + 0.5) / 1_000) for place in range(1_000)))
    linear = 2 * np.sin(np.pi * 0.78 / 6)
    random = np.random.default_rng(91)
    held = unguarded = 0
    for _ in range(RUNS // 3):
        places = random.random(PAIRS)
        sent = round(share * PAIRS)
        places[:sent] = middle - 0.05 + 0.1 * random.random(sent)
        champion = [NORMAL.inv_cdf(place) for place in places.tolist()]
        challenger = linear * np.array(champion) + np.sqrt(1 - linear**2) * random.normal(size=PAIRS)
        pairs = ScorePairs(PairSource.LOG, champion, challenger.tolist())
        unguarded += judge_agreement(pairs).state is AgreementState.DIFFERENT
        held += judge_agreement(pairs._replace(usual_spread=usual)).state is AgreementState.DIFFERENT

    sys.stdout.write(f"\n{share:.0%} sent around {middle:.0%}: {held} of {RUNS // 3} held, {unguarded} without")
    assert held == 0


def test_the_demos_better_models_are_not_held_and_the_one_with_wrong_columns_is():
    scores = {version: scores_of(version) for version in (1, 2, 3, 4)}

    def sampled(one: int, other: int) -> Draw:
        def draw(random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
            chosen = random.choice(len(scores[one]), PAIRS, replace=False)
            return scores[one][chosen], scores[other][chosen]

        return draw

    found = {pair: held(sampled(*pair)) for pair in ((1, 2), (1, 4), (2, 4), (1, 3))}
    ranks = {pair: rank_correlation(scores[pair[0]], scores[pair[1]]) for pair in found}

    sys.stdout.write(f"\nvisits: held {found} of {RUNS}, rank correlations {ranks}")
    assert found == {(1, 2): 0, (1, 4): 0, (2, 4): 0, (1, 3): RUNS}


def scores_of(version: int) -> FloatArray:
    """Return what a trained version of ``visits`` says of the held-out rows."""
    example = example_version("visits", version)
    features = example.input_schema["tensors"][0]["features"]
    inputs = np.array([[row.inputs[name] for name in features] for row in example_rows()], np.float32)
    scores: FloatArray = OnnxModel(example.read(), example.label).run({"input": inputs})["probabilities"][:, 1]
    return scores


PAST_MINUTES = 10
LIVE_RUNS = 300 if RUNS > 300 else 60


def minutes_of(world: World, seed: int, weight_percent: float, minutes: int) -> tuple[float, float]:
    """Return the minute in which ten entities had met the challenger, and the one that found its scores constant."""
    traffic, windows = Traffic(world, seed), []
    met = found = np.inf
    for minute in range(1, minutes + 1):
        windows += traffic.windows((minute - 1) * PER_MINUTE, PER_MINUTE, weight_percent)
        latest = live_scores(windows[-2 * PER_MINUTE * PAST_MINUTES :], ROLLOUT)
        if met == np.inf and stratify(windows, ROLLOUT).arrivals.challenger_entities >= 10:
            met = minute
        if constant_words(latest):
            return met, minute
        if varies(latest):
            break
    return met, found


@pytest.mark.parametrize("entities", [300, 3_000, 30_000])
@pytest.mark.parametrize("own_scores", [False, True])
def test_no_equal_version_is_constant(entities, own_scores):
    world = World("scores", 333, entities=entities, has_scores=True, has_histograms=True, own_scores=own_scores)

    found = [minutes_of(world, seed, 2.0, 60)[1] for seed in range(LIVE_RUNS)]

    sys.stdout.write(f"\n{entities} entities: {np.isfinite(found).sum()} of {LIVE_RUNS} held")
    assert not np.isfinite(found).any()


@pytest.mark.parametrize("per_minute", [333, 3_000])
@pytest.mark.parametrize("entities", [300, 30_000])
def test_a_constant_score_is_found_within_ten_minutes_of_the_tenth_entity(per_minute, entities):
    world = World(
        "constant", per_minute, entities=entities, has_scores=True, has_histograms=True, own_scores=True, score_spread=0
    )
    runs = range(10 if per_minute > 1_000 else 30)

    minutes = [minutes_of(world, seed, 5.0 if entities == 300 else 2.0, 60) for seed in runs]

    waits = [found - met for met, found in minutes if np.isfinite(met)]
    sys.stdout.write(f"\n{per_minute}/min, {entities} entities: median {np.median(waits)}, most {max(waits)} minutes")
    assert max(waits) <= 10
