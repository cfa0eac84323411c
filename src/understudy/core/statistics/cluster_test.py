"""The cluster test: whether a difference would survive other entities; the second key of every guardrail.

Requests of one entity are alike, so a few busy ones can make a difference that means nothing: without this key,
skewed entities gave 33-35 % false rollbacks, with it 0.5-1 % (statistics page, §2). Entities are hashed into 64
analysis buckets, which are independent of each other whatever happens inside one, and their scatter says how far a
sum over them can be trusted.
"""

from typing import NamedTuple, overload

import numpy as np

from understudy.core import special_functions as special
from understudy.core.statistics.sequential_evidence import (
    FloatArray,
    IntArray,
)
from understudy.core.statistics.suffix_sums import suffix_sums
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

_EACH = np.ones(ANALYSIS_BUCKETS)
"""Multiplied with it, a window's buckets are summed; at a quarter of the cost of ``sum``."""


class BucketSums(NamedTuple):
    """A quantity and what it is a quantity of, in each window and bucket: shape (windows, 64) each."""

    value_champion: FloatArray
    champion: FloatArray
    value_challenger: FloatArray
    challenger: FloatArray


class Expected(NamedTuple):
    """What the null hypothesis says of each window, shape (windows,) each.

    ``share`` is the challenger's weight in the window (0 to 1), the others are the expected value of one trial.
    """

    share: FloatArray
    champion: FloatArray
    challenger: FloatArray


def expected_rates(sums: BucketSums, tolerated_ratio: float) -> Expected:
    """Return the null hypothesis that the challenger's rate is the champion's times ``tolerated_ratio``."""
    bad_champion, champion, bad_challenger, challenger = (column @ _EACH for column in sums)
    challenger = challenger * tolerated_ratio
    bad = bad_champion + bad_challenger
    trials = champion + challenger
    rate = _divided(bad, trials)
    return Expected(_divided(challenger, trials), rate, rate * tolerated_ratio)


def expected_means(sums: BucketSums, shift: float) -> Expected:
    """Return the null hypothesis that the challenger's mean is the champion's plus ``shift``."""
    sum_champion, champion, sum_challenger, challenger = (column @ _EACH for column in sums)
    mean = _divided(sum_champion + sum_challenger - shift * challenger, champion + challenger)
    return Expected(_divided(challenger, champion + challenger), mean, mean + shift)


def cluster_z(sums: BucketSums, expected: Expected, firsts: IntArray, changes_from: int | None = None) -> FloatArray:
    """Return for each start ``first`` how far the challenger is above what is expected, over all windows from there on.

    The score of a bucket is ``(1 - share) (value - expected)`` of its challenger's trials minus ``share (value -
    expected)`` of its champion's, summed over windows; the champion's entities scatter as well, and at a weight of 50 %
    as much. A window in which one side has no trials adds nothing.

    Args:
        sums: By window and bucket.
        expected: Of each window.
        firsts: Indices of windows.
        changes_from: From this place of ``firsts`` on the values are counts of bad events, and the score is the signed
            root of their likelihood ratio instead, as of :func:`_deviance_roots`.

    Source:
        Liang and Zeger 1986 (sums over clusters); t with 63 degrees of freedom for the estimated scatter, turned to z.
    """
    since = suffix_sums(_scores(sums, expected), firsts)
    variance: FloatArray = ANALYSIS_BUCKETS * np.var(since, axis=1, ddof=1)
    t: FloatArray = np.divide(since.sum(axis=1), np.sqrt(variance), out=np.zeros_like(variance), where=variance > 0)
    if changes_from is not None and changes_from < len(firsts):
        t[changes_from:] = _deviance_roots(sums, expected, firsts[changes_from:], variance[changes_from:])
    return t_to_z(t, ANALYSIS_BUCKETS - 1)


def _deviance_roots(sums: BucketSums, expected: Expected, firsts: IntArray, variance: FloatArray) -> FloatArray:
    """Return the signed root of the likelihood ratio of independent events, divided by their design effect.

    A sum divided by the scatter that there is looks less sure the larger a change is: three times the errors scatter
    nearly three times as much. So the scatter only says how many times more it is than that of independent events, 1 at
    least. Of windows with different shares the mean one is used, which makes the count's spread no smaller.

    Source:
        Deviance: McCullagh and Nelder, *Generalized Linear Models*, 1989, §2.3. Design effect: Rao and Scott 1981.
        Different shares: Hoeffding 1956.
    """
    share = expected.share
    is_compared = (share > 0) & (share < 1)
    own, others = (is_compared * (column @ _EACH) for column in (sums.value_challenger, sums.value_champion))
    by_itself = (1 - share) ** 2 * own + share**2 * others
    columns = np.column_stack([own, others, share * (own + others), by_itself])
    bad, bad_champion, wanted, independent = suffix_sums(columns, firsts).T
    wanted_champion = bad + bad_champion - wanted
    deviance = special.xlogy(bad, _divided(bad, wanted))
    deviance += special.xlogy(bad_champion, _divided(bad_champion, wanted_champion))
    design_effect = np.maximum(_divided(variance, independent), 1.0)
    found: FloatArray = np.sqrt(2 * np.maximum(deviance, 0.0) / design_effect) * np.sign(bad - wanted)
    return found


def _scores(sums: BucketSums, expected: Expected) -> FloatArray:
    """Return each bucket's score in each window, shape (windows, 64)."""
    is_compared = (expected.share > 0) & (expected.share < 1)
    to_challenger, to_champion = is_compared * (1 - expected.share), is_compared * expected.share
    scores: FloatArray = to_challenger[:, None] * sums.value_challenger
    scores -= (to_challenger * expected.challenger)[:, None] * sums.challenger
    scores -= to_champion[:, None] * sums.value_champion
    scores += (to_champion * expected.champion)[:, None] * sums.champion
    return scores


@overload
def t_to_z(t: float, degrees: float) -> float: ...
@overload
def t_to_z(t: FloatArray, degrees: float) -> FloatArray: ...
def t_to_z(t: float | FloatArray, degrees: float) -> float | FloatArray:
    """Return the z-score that is as improbable as a t-score with so many degrees of freedom; of one, or of several."""
    tail = np.maximum(special.stdtr(degrees, -np.abs(t)), 1e-300)
    found: FloatArray = -special.ndtri(tail) * np.sign(t)
    return found


def _divided(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
