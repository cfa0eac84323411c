"""Evidence by betting: is the mean of differences that lie between -1 and 1 below a limit?

Each difference is a bet against the null hypothesis: a capital of 1 that is bet on "worse" is not expected to grow
while the mean is not. It needs neither a variance nor many values, and holds at every look.
"""

from math import sqrt

import numpy as np

from understudy.core.statistics.cluster_test import t_to_z
from understudy.core.statistics.sequential_evidence import FloatArray, IntArray, log_mean_exp
from understudy.core.statistics.suffix_sums import suffix_sums
from understudy.core.windows.analysis_buckets import ANALYSIS_BUCKETS

BETS: FloatArray = np.geomspace(0.03, 0.9, 12)
"""Shares of the capital that are bet, each with the same part of it: a mean loss of 0.03 to 0.9 is near one of them."""


def log_loss_evidence(differences: FloatArray, tolerated: float, firsts: IntArray) -> FloatArray:
    """Return the evidence that the mean is below ``-tolerated``, of the differences from each of ``firsts`` on.

    The mean over fixed bets is the same in whatever order the differences come.

    Args:
        differences: Each in -1 to 1; its expectation, given those before it, is what the null hypothesis is about.
        tolerated: From 0 to below 1.
        firsts: Indices, shape (processes,).

    Source:
        Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", JRSS B 2024,
        arXiv 2010.09686, §4.
    """
    worse = -(differences + tolerated)
    gains = np.log1p(np.outer(worse, BETS / (1 + tolerated)))
    return log_mean_exp(suffix_sums(gains, firsts).T)


def clustered_loss_z(differences: FloatArray, buckets: IntArray, tolerated: float, firsts: IntArray) -> FloatArray:
    """Return how surely other entities would show a mean below ``-tolerated`` as well, from each of ``firsts`` on.

    Args:
        differences: As for :func:`log_loss_evidence`.
        buckets: The analysis bucket of each difference's entity; buckets are independent whatever happens inside one.
        tolerated: As for :func:`log_loss_evidence`, like ``firsts``.
        firsts: Indices, shape (processes,).

    Source:
        Liang and Zeger 1986, as :func:`understudy.core.statistics.cluster_test.cluster_z`.
    """
    found = []
    for first in firsts.tolist():
        sums = np.bincount(buckets[first:], -(differences[first:] + tolerated), ANALYSIS_BUCKETS)
        error = sqrt(ANALYSIS_BUCKETS * float(np.var(sums, ddof=1)))
        found.append(t_to_z(float(sums.sum()) / error, ANALYSIS_BUCKETS - 1) if error > 0 else 0.0)
    return np.array(found, np.float64)
