"""The sample-ratio test: whether entities are split as the policy says, by evidence that holds however often one looks.

The unit is an entity, counted when it is first met, against the share that held just then; so a growing share, which
moves known entities on purpose, is no mismatch.
"""

from collections.abc import Mapping, Sequence
from math import exp, inf, isclose, log
from typing import NamedTuple

import numpy as np

from understudy.core import special_functions as special
from understudy.core.statistics.sequential_evidence import (
    FloatArray,
    log_mean_exp,
)
from understudy.core.windows.strata import Arrivals

SAMPLE_RATIO_ALPHA = 0.001
"""Below this p-value the split was not the one that was set, and nothing is compared. Source: statistics §3."""
_LOG_ODDS = np.geomspace(0.002, 1.4, 15)
_ODDS: FloatArray = np.exp(np.concatenate([-_LOG_ODDS, _LOG_ODDS]))
"""The alternatives: B's losses or gains of entities, 0.2 % to three quarters, both ways. A loss between two of them is
found about as soon as one of them, and twice as many find nothing sooner (measured)."""


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


class ArmsEpoch(NamedTuple):
    """A time with one allocation of several arms, in one order: their new entities, and their shares as they were set.

    The shares (0-1) add up to 1; an arm that had no calls then has the share 0.
    """

    entities: tuple[int, ...]
    shares: tuple[float, ...]


class ArmsRatio(NamedTuple):
    """Whether all arms have the entities that the split should have given them; arms in the order of the epochs."""

    p_value: float
    """Holds however often one looks."""
    chi2_p_values: tuple[float, ...]
    """Of each epoch alone over all of its arms, for one look."""
    combined_chi2_p_value: float
    entities: tuple[int, ...]
    expected: tuple[float, ...]

    @property
    def is_mismatch(self) -> bool:
        """Whether a difference between any two of the arms may be one of who was counted."""
        return self.p_value < SAMPLE_RATIO_ALPHA

    @property
    def sentence(self) -> str:
        """What a mismatch says instead of a verdict."""
        counted = _listed([f"{entities:,}" for entities in self.entities])
        expected = _listed([f"{entities:,.0f}" for entities in self.expected])
        return (
            f"No verdict: the {len(self.entities)} arms have {counted} entities where the split gives {expected} "
            f"(sample ratio p {self.p_value:.1g}, limit {SAMPLE_RATIO_ALPHA:g}). Find out who is not counted before "
            "comparing anything."
        )


def sample_ratio(epochs: Sequence[Epoch]) -> SampleRatio:
    """Return whether the arms have as many entities as each epoch's allocation should have given them.

    Raises:
        ValueError: If an epoch's share is outside 0-1.

    Source:
        :func:`split_evidence`, after the last epoch.
    """
    for _, _, share in epochs:
        if not 0 <= share <= 1:
            raise ValueError(f"share_b: expected 0 to 1, got {share:g}")
    entities_b = sum(epoch.entities_b for epoch in epochs)
    totals = [a + b for a, b, _ in epochs]
    shares = [epoch.share_b for epoch in epochs]
    evidence = _log_evidence(np.array([float(entities_b)]), np.array([totals], np.float64), np.array(shares))
    statistics = [_chi2(*epoch) for epoch in epochs]
    return SampleRatio(
        p_value=0.0 if inf in statistics else exp(min(0.0, -float(evidence[0]))),
        chi2_p_values=tuple(float(special.chdtrc(1, statistic)) for statistic in statistics),
        combined_chi2_p_value=float(special.chdtrc(max(len(statistics), 1), sum(statistics))),
        expected_b=sum(total * share for total, share in zip(totals, shares, strict=True)),
        entities_b=entities_b,
    )


def sample_ratio_of_arms(epochs: Sequence[ArmsEpoch]) -> ArmsRatio:
    """Return whether all arms together have as many entities as each epoch's allocation should have given them.

    Raises:
        ValueError: If there is no epoch, or the shares of one are outside 0-1 or do not add up to 1.

    Source:
        Evidence: Lindon and Malek, as :func:`split_evidence`; the alternatives are that one arm loses or gains entities
        and the others share the rest as they were set, which for two arms is :func:`sample_ratio`. Beside it Pearson's
        chi-square over all arms (Philosophical Magazine 50 (1900)) with one degree of freedom less than an epoch has
        arms; statistics of epochs add up.
    """
    if not epochs or any(min(epoch.shares) < 0 or not isclose(sum(epoch.shares), 1) for epoch in epochs):
        raise ValueError("epochs: expected at least one, each with shares from 0 to 1 that add up to 1")
    entities, shares = (np.array(columns, dtype=np.float64) for columns in zip(*epochs, strict=True))
    totals = entities.sum(axis=1)
    evidence = log_mean_exp(
        np.stack(
            [
                _log_evidence(own.sum(keepdims=True), totals[None, :], share)
                for own, share in zip(entities.T, shares.T, strict=True)
            ]
        )
    )
    statistics = [_chi2_of_arms(*rows) for rows in zip(entities, shares, strict=True)]
    freedoms = [max(int((share > 0).sum()) - 1, 1) for share in shares]
    return ArmsRatio(
        p_value=0.0 if inf in statistics else exp(min(0.0, -float(evidence[0]))),
        chi2_p_values=tuple(special.chdtrc(freedoms, statistics).tolist()),
        combined_chi2_p_value=float(special.chdtrc(sum(freedoms), sum(statistics))),
        entities=tuple(int(arm) for arm in entities.sum(axis=0)),
        expected=tuple((totals @ shares).tolist()),
    )


def split_evidence(arrivals: Arrivals, challenger_ratios: Mapping[int, float]) -> float:
    """Return the largest logarithm of the evidence, at any time so far, that the split is not the policy's.

    Args:
        arrivals: In any order. Each shipper counts for itself: an entity that several of them meet is new to each, so
            their counts are not independent, but the mean of their evidence is evidence still.
        challenger_ratios: The challenger's share (0 to 1) under each policy generation; arrivals under another one, or
            under a share of 0 or 1, are left out.

    Source:
        Lindon and Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022, arXiv 2011.03567; here
        with a grid of odds ratios in place of their Dirichlet mixture. Half of the evidence is of a loss or gain that
        runs through all shares, so that a ramp's steps add up; half of one that each share may have for itself, so
        that healthy steps do not hide a fault that begins at a later one. An average of likelihood ratios exceeds
        1 / alpha at any time with a chance of alpha at most (Ville's inequality); with N shippers that appear one
        after the other, of alpha (1 + 1/2 + … + 1/N) (Chow 1960).
    """
    ratios = ratios_of(arrivals, challenger_ratios)
    is_split = (ratios > 0) & (ratios < 1)
    split = arrivals.where(is_split)
    if not len(split.start):
        return 0.0
    starts, time = np.unique(split.start, return_inverse=True)
    shares, share = np.unique(ratios[is_split], return_inverse=True)
    paths = []
    for shipper in np.flatnonzero(np.bincount(split.shipper)).tolist():
        own = split.shipper == shipper
        new, cells = split.new_entities[own], time[own] * len(shares) + share[own]
        total, challenger = (
            np.bincount(cells, counted, len(starts) * len(shares)).reshape(len(starts), -1).astype(np.float64)
            for counted in (new, new * split.is_challenger[own])
        )
        paths.append(_log_ramp_evidence(np.cumsum(challenger, axis=0), np.cumsum(total, axis=0), shares))
    return max(0.0, float(log_mean_exp(np.stack(paths)).max()))


def ratios_of(arrivals: Arrivals, challenger_ratios: Mapping[int, float]) -> FloatArray:
    """Return the challenger's share that held for each row; 0 under an unknown generation."""
    generations, place = np.unique(arrivals.policy_generation, return_inverse=True)
    ratios = [challenger_ratios.get(generation, 0.0) for generation in generations.tolist()]
    return np.array(ratios, np.float64)[place]


def _log_evidence(entities_b: FloatArray, totals: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the logarithm of the evidence after each of some times.

    Args:
        entities_b: Of B up to each time, shape ``(times,)``.
        totals: Of both arms under each share up to each time, shape ``(times, shares)``.
        shares: B's, as they were set.
    """
    # With B's odds multiplied by r its share is share·r / (1 - share + share·r).
    # Not a matrix product: for so few columns the threads of BLAS cost four times as much as they save (measured).
    expected = np.einsum("os,ts->ot", np.log1p(np.outer(_ODDS - 1, shares)), totals)
    return log_mean_exp(np.outer(np.log(_ODDS), entities_b) - expected)


def _log_ramp_evidence(entities_b: FloatArray, totals: FloatArray, shares: FloatArray) -> FloatArray:
    """Return the average of the evidence of one alternative through all shares, and of one for each share.

    Args:
        entities_b: Of B under each share up to each time, shape ``(times, shares)``.
        totals: Of both arms, the same shape.
        shares: B's, as they were set.
    """
    through_all = _log_evidence(entities_b.sum(axis=1), totals, shares)
    each = [_log_evidence_of_one(entities_b[:, place], totals[:, place], share) for place, share in enumerate(shares)]
    average: FloatArray = np.logaddexp(through_all, np.sum(each, axis=0)) - log(2)
    return average


def _log_evidence_of_one(entities_b: FloatArray, totals: FloatArray, share: float) -> FloatArray:
    """Return the evidence of one share: 0 before its first entity, and what its last one left from there on."""
    first = max(0, int(np.searchsorted(totals, 0.0, side="right")) - 1)
    end = max(first, int(np.searchsorted(totals, totals[-1]))) + 1  # where it had none, one time without any
    within = _log_evidence(entities_b[first:end], totals[first:end, None], np.array([share]))
    return np.pad(within, (first, len(totals) - end), mode="edge")


def _chi2(a: int, b: int, share: float) -> float:
    if (share == 0 and b > 0) or (share == 1 and a > 0):
        return inf
    variance = (a + b) * share * (1 - share)
    return (b - (a + b) * share) ** 2 / variance if variance else 0.0


def _chi2_of_arms(entities: FloatArray, shares: FloatArray) -> float:
    if entities[shares == 0].any():
        return inf
    expected = entities.sum() * shares[shares > 0]
    return float(((entities[shares > 0] - expected) ** 2 / expected).sum()) if expected.any() else 0.0


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]
