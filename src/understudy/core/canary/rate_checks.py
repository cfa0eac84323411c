"""The checks of shares: errors, slow answers, and the split itself."""

from math import inf, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.check_input import (
    INTERVAL_ALPHA,
    Comparison,
    Keys,
    Look,
    evidence_row,
    finite_exp,
    told_since,
)
from understudy.core.canary.decision import Check, CheckState, Evidence
from understudy.core.statistics.cluster_test import BucketSums, cluster_z, expected_rates
from understudy.core.statistics.sample_ratio import ratios_of, split_evidence
from understudy.core.statistics.sequential_evidence import (
    FloatArray,
    IntArray,
    Processes,
    Rates,
    half_normal_log_evidence,
    log_mean_exp,
    log_rate_evidence_since,
    rate_gains,
    ratio_interval,
    sums_since,
)
from understudy.core.windows.window import BucketColumn

MIN_WINDOWS = 4
"""A window may add a quarter of what is needed at most. With the stake of the first stage it takes five windows then to
roll back a challenger that fails every call, 75 seconds; at a fifth it would take 90."""

FIRST_CALLS_STAKE = 0.05
"""Share of the error rate's alpha for early failure (:mod:`understudy.core.canary.early_failure`), fixed before the
rollout starts; the windows have the rest."""


class RateCheck(NamedTuple):
    """A share of bad events: what is counted, and what may be concluded from it."""

    check: Check
    rates: Rates
    buckets: BucketSums
    processes: Processes
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
        look.processes(),
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
        look.processes_of_stages().after(look.warm),
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
    keys = keys or _keys(look, compared, log_needed)

    def comparison(first: int) -> Comparison:
        rates = compared.rates.cut(first)
        champion, challenger = _standardised(rates)
        return Comparison(champion, challenger, _ratio(champion, challenger), *ratio_interval(rates, INTERVAL_ALPHA))

    whole = comparison(compared.processes.first)
    row = evidence_row(look, compared.check, whole, compared.tolerated_ratio, keys, is_enough=is_enough)
    return told_since(look, row, keys, comparison)


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


def _keys(look: Look, compared: RateCheck, log_needed: float) -> Keys:
    gains = rate_gains(compared.rates, compared.tolerated_ratio, log_needed / MIN_WINDOWS)
    against_chance = log_rate_evidence_since(gains, compared.processes.firsts)
    return Keys(
        log(compared.stake) + compared.processes.together(against_chance),
        log_needed,
        _across_entities(look, compared),
        compared.processes.telling(against_chance),
    )


def _across_entities(look: Look, compared: RateCheck) -> float:
    """Return the second key's evidence.

    Some thirty entities that all fail are little to a z-score and much to a count, so processes within the present
    stage, of which little is staked on each, are the mean of both.
    """
    processes = compared.processes
    expected = expected_rates(compared.buckets, compared.tolerated_ratio)
    scores = cluster_z(compared.buckets, expected, processes.firsts)
    windows = np.maximum(len(look.strata.starts) - processes.firsts, 1).astype(np.float64)
    evidence = half_normal_log_evidence(scores, windows, look.policy.across_entities_alpha)
    is_recent = processes.firsts >= max(look.firsts[-1], _first_of_split(look))
    is_recent[: processes.stages] = False
    evidence[is_recent] = np.logaddexp(evidence[is_recent], by_bucket(compared, processes.firsts[is_recent])) - log(2)
    return processes.together(evidence)


def _first_of_split(look: Look) -> int:
    """Return the first window that is wholly under the newest policy."""
    arrivals = look.strata.arrivals
    if not len(arrivals.start):
        return len(look.strata.starts)
    begins = arrivals.start[arrivals.policy_generation == arrivals.policy_generation.max()].min()
    return int(np.searchsorted(look.strata.starts, begins, side="right"))


def by_bucket(compared: RateCheck, firsts: IntArray) -> FloatArray:
    """Return the evidence since each of ``firsts`` if all bad events of the challenger's in a bucket are one.

    An entity is in each window it calls in, and all of a bucket's entities may be alike. The champion's are not made
    one, which only lowers the evidence. The split has to be the same in all windows since.
    """
    is_compared = ((compared.rates.champion > 0) & (compared.rates.challenger > 0))[:, None]
    failing = np.count_nonzero(sums_since(compared.buckets.value_challenger * is_compared, firsts), axis=1)
    since = Rates(*sums_since(np.column_stack(compared.rates) * is_compared, firsts).T)
    return log_mean_exp(
        rate_gains(since._replace(bad_challenger=failing.astype(np.float64)), compared.tolerated_ratio, inf).T
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
