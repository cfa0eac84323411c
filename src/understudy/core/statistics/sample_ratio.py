"""Whether the traffic is split as the policy says: evidence that may be looked at as often as one likes.

The unit is an entity, counted when it is first met, against the weight that held just then; so a growing weight, which
moves known entities on purpose, is no mismatch. Each shipper counts for itself: an entity that several of them meet is
new to each, so their counts are not independent, but the mean of their evidence is evidence still.
"""

from collections.abc import Mapping
from math import log

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from understudy.core.statistics.sequential_evidence import log_mean_exp
from understudy.core.windows.strata import Arrivals

FloatArray = NDArray[np.float64]

TUNED_DEVIATION = 0.1
"""Relative deviation of the challenger's share that the mixture is centred on."""


def split_evidence(arrivals: Arrivals, challenger_ratios: Mapping[int, float]) -> float:
    """Return the largest logarithm of the evidence, at any time so far, that the split is not the policy's.

    Args:
        arrivals: In any order.
        challenger_ratios: The challenger's share (0 to 1) under each policy generation; arrivals under another one, or
            under a share of 0 or 1, are left out.

    Source:
        Lindon and Malek, arXiv 2011.03567: Dirichlet-multinomial mixture. With N shippers that appear one after the
        other, the chance of ever reaching 1 / alpha is at most alpha (1 + 1/2 + … + 1/N) (Chow 1960).
    """
    ratios = ratios_of(arrivals, challenger_ratios)
    is_split = (ratios > 0) & (ratios < 1)
    split, ratios = arrivals.where(is_split), ratios[is_split]
    if not len(ratios):
        return 0.0
    starts = np.unique(split.start)
    paths = [
        _path(split.where(split.shipper == shipper), ratios[split.shipper == shipper], starts)
        for shipper in np.unique(split.shipper)
    ]
    return max(0.0, float(log_mean_exp(np.stack(paths)).max()))


def ratios_of(arrivals: Arrivals, challenger_ratios: Mapping[int, float]) -> FloatArray:
    """Return the challenger's share that held for each row; 0 under an unknown generation."""
    generations, place = np.unique(arrivals.policy_generation, return_inverse=True)
    ratios = [challenger_ratios.get(generation, 0.0) for generation in generations.tolist()]
    return np.array(ratios, np.float64)[place]


def _path(own: Arrivals, ratios: FloatArray, starts: NDArray[np.int64]) -> FloatArray:
    """Return one shipper's evidence at each of ``starts``: the product over the times of one and the same share."""
    order = np.lexsort((own.policy_generation, own.start))
    own, ratios = own.where(order), ratios[order]
    borders = np.flatnonzero(np.diff(ratios)) + 1
    path = np.zeros(len(starts))
    for epoch in np.split(np.arange(len(ratios)), borders):
        places = np.searchsorted(starts, own.start[epoch])
        new, is_challenger = own.new_entities[epoch], own.is_challenger[epoch]
        path += _mixture(
            np.cumsum(np.bincount(places, new * is_challenger, len(starts))),
            np.cumsum(np.bincount(places, new * (1 - is_challenger), len(starts))),
            float(ratios[epoch[0]]),
        )
    return path


def _mixture(challenger: FloatArray, champion: FloatArray, ratio: float) -> FloatArray:
    """Return the evidence of running counts against a share, mixed over shares around it."""
    weight = (1 - ratio) / (ratio * TUNED_DEVIATION**2)
    one, other = weight * ratio, weight * (1 - ratio)
    found: FloatArray = (
        betaln(one + challenger, other + champion)
        - betaln(one, other)
        - challenger * log(ratio)
        - champion * log(1 - ratio)
    )
    return found
