"""The checks of shares: errors, slow answers, and the split itself."""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

from understudy.core.canary_look import INTERVAL_ALPHA, Comparison, Keys, Look, evidence_row, finite_exp
from understudy.core.clusters import BucketSums, cluster_z, expected_rates
from understudy.core.decision import Check, CheckState, Evidence
from understudy.core.evidence import (
    Rates,
    half_normal_log_evidence,
    log_rate_evidence,
    rate_gains,
    ratio_interval,
    restarted,
)
from understudy.core.sample_ratio import ratios_of, split_evidence
from understudy.core.windows import BucketColumn

FEWEST_WINDOWS = 4
"""A window may add a quarter of what is needed at most. With the stake of the first stage it takes five windows then to
roll back a challenger that fails every call, 75 seconds; at a fifth it would take 90."""

FIRST_CALLS_STAKE = 0.05
"""Share of the error rate's evidence that is staked on the first calls (``core.canary_first_calls``), fixed before the
rollout starts; the rest is on the windows."""


class RateCheck(NamedTuple):
    """A share of bad events: what is counted, and what may be concluded from it."""

    check: Check
    rates: Rates
    buckets: BucketSums
    firsts: Sequence[int]
    tolerated_ratio: float
    stake: float = 1.0
    """Share of the evidence that is staked on the windows."""


def error_rate(look: Look) -> RateCheck:
    """Compare entities with at least one error, of the entities of each window."""
    champion, challenger = look.strata.champion, look.strata.challenger
    return RateCheck(
        Check.ERROR_RATE,
        Rates(champion["error_entities"], champion["entities"], challenger["error_entities"], challenger["entities"]),
        BucketSums(
            *(side.bucket(c) for side in (champion, challenger) for c in (BucketColumn.ERRORS, BucketColumn.CALLS))
        ),
        look.firsts,
        look.policy.tolerated_error_ratio,
        1 - FIRST_CALLS_STAKE,
    )


def slow_tail(look: Look) -> RateCheck:
    """Compare the challenger's answers above 1.2 τ with the champion's above τ: is its tail 20 % slower?"""
    champion, challenger = look.strata.champion, look.strata.challenger
    return RateCheck(
        Check.SLOW_TAIL,
        Rates(champion["slow_low"], champion.answered, challenger["slow_high"], challenger.answered),
        BucketSums(
            champion.bucket(BucketColumn.SLOW_LOW),
            champion.bucket_answered,
            challenger.bucket(BucketColumn.SLOW_HIGH),
            challenger.bucket_answered,
        ),
        [max(first, look.warm) for first in look.firsts],
        look.policy.tolerated_slow_ratio,
    )


def judge_rate(
    look: Look, compared: RateCheck, log_needed: float, *, is_enough: bool, keys: Keys | None = None
) -> Evidence:
    """Return whether a rate is worse than tolerated.

    Args:
        look: What is looked at.
        compared: The rate.
        log_needed: Logarithm of the evidence that it needs.
        is_enough: Whether a regression that matters would have been seen, so that none means something.
        keys: The evidence, where it is not that of the windows.
    """
    keys = keys or Keys(
        _rate_evidence(look, compared, log_needed), log_needed, _rate_evidence_across_entities(look, compared)
    )
    rates = compared.rates.cut(min(compared.firsts))
    champion, challenger = _standardised(rates)
    interval = ratio_interval(rates, INTERVAL_ALPHA)
    comparison = Comparison(champion, challenger, _ratio(champion, challenger), *interval)
    return evidence_row(look, compared.check, comparison, compared.tolerated_ratio, keys, is_enough=is_enough)


def judge_sample_ratio(look: Look) -> Evidence:
    """Return whether entities are split as the policy says; ``INVALID`` when not."""
    arrivals = look.strata.arrivals.where(look.strata.arrivals.start >= look.stage.split_from)
    ratios = {generation: percent / 100 for generation, percent in look.stage.weights_percent.items()}
    found = split_evidence(arrivals, ratios)
    needed = -log(look.policy.sample_ratio_alpha)
    is_challenger = arrivals.is_challenger > 0
    challenger = float(arrivals.new_entities[is_challenger].sum())
    champion = float(arrivals.new_entities[~is_challenger].sum())
    expected = float(ratios_of(arrivals, ratios) @ arrivals.new_entities)
    return Evidence(
        Check.SAMPLE_RATIO,
        CheckState.INVALID if found >= needed else CheckState.OK if expected else CheckState.TOO_EARLY,
        *Comparison(champion, challenger, challenger / expected if expected else None, None, None),
        limit=1.0,
        evidence=finite_exp(found),
        evidence_needed=finite_exp(needed),
        evidence_across_entities=None,
        evidence_across_entities_needed=None,
        champion_requests=look.requests[0],
        challenger_requests=look.requests[1],
    )


def _rate_evidence(look: Look, compared: RateCheck, log_needed: float) -> float:
    gains = rate_gains(compared.rates, compared.tolerated_ratio, log_needed / FEWEST_WINDOWS)
    evidence = restarted([log_rate_evidence(gains[first:]) for first in compared.firsts], look.stage.planned)
    return evidence + log(compared.stake)


def _rate_evidence_across_entities(look: Look, compared: RateCheck) -> float:
    expected = expected_rates(compared.buckets, compared.tolerated_ratio)
    scores = cluster_z(compared.buckets, expected, compared.firsts)
    windows = len(look.strata.starts)
    alpha = look.policy.across_entities_alpha
    return restarted(
        [
            half_normal_log_evidence(z, max(windows - first, 1), alpha)
            for z, first in zip(scores, compared.firsts, strict=True)
        ],
        look.stage.planned,
    )


def _standardised(rates: Rates) -> tuple[float | None, float | None]:
    """Return both rates as they would be if both sides' trials fell on the windows alike (Mantel and Haenszel 1959)."""
    trials = rates.champion + rates.challenger
    used = (rates.champion > 0) & (rates.challenger > 0)
    weights = (rates.champion * rates.challenger)[used] / trials[used]
    total = float(weights.sum())
    if total == 0:
        return None, None
    champion = float(weights @ (rates.bad_champion[used] / rates.champion[used]))
    challenger = float(weights @ (rates.bad_challenger[used] / rates.challenger[used]))
    return champion / total, challenger / total


def _ratio(champion: float | None, challenger: float | None) -> float | None:
    if champion is None or challenger is None or champion == challenger == 0:
        return None
    return challenger / champion if champion > 0 else float("inf")
