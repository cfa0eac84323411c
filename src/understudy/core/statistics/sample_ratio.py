"""Whether the traffic is split as the policy says: evidence that may be looked at as often as one likes.

The unit is an entity, counted when it is first met, against the weight that held just then; so a growing weight, which
moves known entities on purpose, is no mismatch. Each shipper counts for itself: an entity that several of them meet is
new to each, so their counts are not independent, but the mean of their evidence is evidence still.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, log
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from understudy.core.statistics.sequential_evidence import log_mean_exp
from understudy.core.windows.strata import Arrivals

FloatArray = NDArray[np.float64]

SAMPLE_RATIO_ALPHA = 0.001
"""Below this p-value the split was not the one that was set, and nothing is compared. Source: statistics §3."""
_LOG_ODDS = np.geomspace(0.002, 1.4, 15)
_SAMPLE_RATIO_ODDS: FloatArray = np.exp(np.concatenate([-_LOG_ODDS, _LOG_ODDS]))
"""B's losses or gains of entities that the test of the sample ratio looks for: 0.2 % to three quarters, both ways. A
loss between two of them is found about as soon as one of them, and twice as many find nothing sooner (measured)."""

TUNED_DEVIATION = 0.1
"""Relative deviation of the challenger's share that the mixture is centred on."""


class Epoch(NamedTuple):
    """A time with one allocation: the new entities of each arm, and the share (0-1) of B among both as it was set."""

    entities_a: int
    entities_b: int
    share_b: float


class SampleRatio(NamedTuple):
    """Whether the arms have the entities that the split should have given them."""

    p_value: float
    """Holds however often one looks."""
    chi2_p_values: tuple[float, ...]
    """Of each epoch alone, for one look."""
    combined_chi2_p_value: float
    expected_b: float
    entities_b: int

    @property
    def is_mismatch(self) -> bool:
        """Whether the difference between the arms may be one of who was counted."""
        return self.p_value < SAMPLE_RATIO_ALPHA


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
        special.betaln(one + challenger, other + champion)
        - special.betaln(one, other)
        - challenger * log(ratio)
        - champion * log(1 - ratio)
    )
    return found


def sample_ratio(epochs: Sequence[Epoch]) -> SampleRatio:
    """Return whether the arms have as many entities as each epoch's allocation should have given them.

    The epochs' evidence is multiplied for each loss or gain of B's entities that may run through all of them, and
    averaged over those; an average of likelihood ratios exceeds 1,000 once in a thousand tests at most, however often
    one looks.

    Raises:
        ValueError: If an epoch's share is outside 0-1.

    Source:
        Lindon & Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022, arXiv 2011.03567; here with
        a grid of odds ratios in place of their Dirichlet mixture, so that a ramp's epochs add up. Ville's inequality.
    """
    log_evidence = np.zeros_like(_SAMPLE_RATIO_ODDS)
    p_values, statistics = [], []
    for a, b, share in epochs:
        if not 0 <= share <= 1:
            raise ValueError(f"share_b: expected 0 to 1, got {share:g}")
        log_evidence += _log_likelihood_ratios(a, b, share)
        statistics.append(_chi2(a, b, share))
        p_values.append(float(special.chdtrc(1, statistics[-1])))
    log_mean = special.logsumexp(log_evidence) - np.log(len(log_evidence))
    expected = sum((a + b) * share for a, b, share in epochs)
    return SampleRatio(
        p_value=exp(min(0.0, -log_mean)),
        chi2_p_values=tuple(p_values),
        combined_chi2_p_value=float(special.chdtrc(max(len(statistics), 1), sum(statistics))),
        expected_b=expected,
        entities_b=sum(epoch.entities_b for epoch in epochs),
    )


def _is_impossible(a: int, b: int, share: float) -> bool:
    return (share == 0 and b > 0) or (share == 1 and a > 0)


def _log_likelihood_ratios(a: int, b: int, share: float) -> FloatArray:
    if _is_impossible(a, b, share):
        return np.full_like(_SAMPLE_RATIO_ODDS, inf)
    # With B's odds multiplied by r its share is share·r / (1 - share + share·r).
    ratios: FloatArray = b * np.log(_SAMPLE_RATIO_ODDS) - (a + b) * np.log1p(share * (_SAMPLE_RATIO_ODDS - 1))
    return ratios


def _chi2(a: int, b: int, share: float) -> float:
    if _is_impossible(a, b, share):
        return inf
    variance = (a + b) * share * (1 - share)
    return (b - (a + b) * share) ** 2 / variance if variance else 0.0
