"""The bars of a judge (statistics page): challengers that lose, and equal ones, before judges of several kinds.

Short by default; :mod:`stats.pieces` says how the numbers of runs that the page names are made.
"""

from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from stats.kept_runs import kept
from stats.pieces import runs, say

from understudy.core.canary.checks import needed_of
from understudy.core.canary.decision import CheckState
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.judge_limits import JudgeLimit
from understudy.core.canary.judgement_records import BOTH_WAYS_RATIO, Judgements
from understudy.core.canary.judgements.judge_check import JUDGE, judge_by_judge
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.windows.strata import stratify

pytestmark = pytest.mark.timeout(3_600)
POLICY = CanaryPolicy(judge=JudgeLimit("quality"))
NEEDED = needed_of(POLICY)[JUDGE.name]
STAGE = Stage("fraud", "42", 1, (0.0,), 6, 25.0, {1: 25.0})
NO_TRAFFIC = stratify([], 1)
MOST = 1_500
RUNS = 300
LOOK = 25
"""Judgements between two looks."""


class World(NamedTuple):
    """What a judge says of pairs in which the challenger is better with a chance of its own."""

    name: str
    wins: float = 0.5
    """The challenger's share of the pairs."""
    first: float = 0.5
    """Where the pair itself does not decide: how often what stands first wins."""
    blind: float = 0.0
    """Share of the pairs in which the place alone decides."""
    ties: float = 0.0
    entities: int = 10_000
    """Who calls; each has a taste of its own, which its judgements share."""
    taste: float = 0.0
    """Standard deviation of these tastes, as a chance to win."""
    scores: bool = False
    """Whether it gives each answer 0 to 1, of which the difference is small."""


EQUAL = [
    World("fair judge"),
    World("biased by position 70:30", first=0.7, blind=1.0),
    World("always for the first", first=1.0, blind=1.0),
    World("half ties", ties=0.5),
    World("40 tenants with tastes of their own", entities=40, taste=0.3),
    World("scores from 0 to 1", scores=True),
]
LOSES = World("loses 60:40", wins=0.4)
LOSES_BIASED = World("loses 60:40, judge biased by position in four of ten pairs", wins=1 / 3, first=0.85, blind=0.4)


def judgements(world: World, seed: int, count: int) -> Judgements:
    """Return what the judge says of so many pairs, of whom it sees a twentieth in both orders."""
    random = np.random.default_rng(seed)
    entities = random.integers(world.entities, size=count)
    tastes = random.normal(0, world.taste, world.entities) if world.taste else np.zeros(world.entities)
    tastes -= tastes.mean()
    if world.scores:
        own = np.clip(random.normal(0.7, 0.15, (2, count)), 0, 1)
        return known(own[1] - own[0], entities)
    wins = np.where(random.random(count) < np.clip(world.wins + tastes[entities], 0, 1), 1.0, -1.0)
    is_blind = random.random(count) < world.blind

    def asked() -> np.ndarray:
        places = np.where(random.random(count) < world.first, 1.0, -1.0)
        return np.where(is_blind, places, wins)

    order = np.where(random.random(count) < 0.5, 1.0, -1.0)
    said = np.where(is_blind, order * asked(), wins)
    again = np.where(is_blind, -order * asked(), wins)
    said = np.where(random.random(count) < BOTH_WAYS_RATIO, (said + again) / 2, said)
    return known(np.where(random.random(count) < world.ties, 0.0, said), entities)


def known(differences: np.ndarray, entities: np.ndarray) -> Judgements:
    count = len(differences)
    buckets = np.random.default_rng(7).integers(64, size=int(entities.max()) + 1)[entities]
    return Judgements(
        tuple(np.arange(1, count + 1, dtype=float).tolist()), tuple(differences.tolist()), tuple(buckets.tolist())
    )


@kept(float)
def taken_back_after(world: World, seed: int, count: int) -> float:
    """Return after how many judgements the check takes the challenger back; infinity if never."""
    seen = judgements(world, seed, count)
    for number in range(LOOK, count + 1, LOOK):
        inputs = CheckInput(NO_TRAFFIC, POLICY, STAGE, (0,), 0, judgements=seen, now=float(number))
        if judge_by_judge(inputs, NEEDED).state is CheckState.FAIL:
            return float(number)
    return inf


def chance(rate: float, count: int) -> float:
    """Return what few runs may be beyond a rate by chance; nothing of as many as the bar is about."""
    return 0.0 if count >= RUNS else 3 * (rate * (1 - rate) * count) ** 0.5


@pytest.mark.parametrize("world", EQUAL, ids=lambda one: one.name)
def test_an_equal_version_is_taken_back_in_at_most_one_of_a_hundred_rollouts(world):
    seeds = runs(2)

    found = [seed for seed in seeds if taken_back_after(world, seed, 2 * MOST) < inf]

    say("an equal version, " + world.name, f"{len(found)} of {len(seeds)} taken back")
    assert len(found) <= 0.01 * len(seeds) + chance(0.01, len(seeds))


@pytest.mark.parametrize("world", [LOSES, LOSES_BIASED], ids=lambda one: one.name)
def test_a_challenger_that_loses_three_to_two_is_found_within_fifteen_hundred_judgements(world):
    found = [taken_back_after(world, seed, MOST) for seed in runs(8)]

    in_time = sum(one <= MOST for one in found)
    say(world.name, f"{in_time} of {len(found)} found, {np.median(found):g} judgements in the median")
    assert in_time >= 0.95 * len(found) - chance(0.95, len(found))
