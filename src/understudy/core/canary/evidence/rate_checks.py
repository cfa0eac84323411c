"""What the checks of rates have in common: evidence that a share of bad events is higher than tolerated."""

from collections.abc import Callable
from math import inf, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.decision import Check, Evidence
from understudy.core.canary.evidence.check_input import (
    INTERVAL_ALPHA,
    CheckInput,
    Comparison,
    Keys,
    evidence_row,
    since_leading_restart,
)
from understudy.core.canary.limits import Rules
from understudy.core.statistics.cluster_test import BucketSums, cluster_z, expected_rates
from understudy.core.statistics.incident_bound import bounded_low, incident_bounded
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
)
from understudy.core.statistics.suffix_sums import suffix_sums

MIN_WINDOWS = 4
"""Of a rate without an incident bound, a window may add at most a quarter of what is needed."""


class RateCheck(NamedTuple):
    """A share of bad events: what is counted, and what may be concluded from it."""

    check: Check
    rates: Rates
    buckets: Callable[[], BucketSums]
    """Counts the same by analysis bucket, which takes longer and is not always asked for."""
    processes: Processes
    tolerated_ratio: float
    alpha_share: float = 1.0
    """Share of the check's alpha that the windows have."""
    is_incident_bounded: bool = False
    """Whether what a short incident may add is bounded; a window has a cap of its own in any case."""
    explained: FloatArray | None = None
    """How many times as many bad events of the challenger's as of the champion's something else explains, in each
    window: 1 or more. Evidence against chance is what is beyond it."""


def judge_rate(
    inputs: CheckInput,
    compared: RateCheck,
    log_needed: float,
    *,
    is_enough: bool,
    keys: Keys | None = None,
    suspicion: float = -inf,
) -> Evidence:
    """Return whether a rate is worse than tolerated.

    Args:
        inputs: What is compared.
        compared: The rate.
        log_needed: Logarithm of the evidence that it needs.
        is_enough: Whether a regression that matters would have been seen, so that none means something.
        keys: The evidence, where it is not that of the windows.
        suspicion: Below this logarithm of the evidence against chance, the second key is not asked, nor the interval.
    """
    keys = keys or _keys(inputs, compared, log_needed, suspicion)
    is_suspected = keys.against_chance >= suspicion

    def comparison(first: int) -> Comparison:
        rates = compared.rates.cut(first)
        champion, challenger = _standardised(rates)
        bounds = _interval(inputs, compared, rates, log_needed) if is_suspected else (None, None)
        return Comparison(champion, challenger, _ratio(champion, challenger), *bounds)

    whole = comparison(compared.processes.first)
    row = evidence_row(inputs, compared.check, whole, compared.tolerated_ratio, keys, is_enough=is_enough)
    return since_leading_restart(inputs, row, keys, comparison)


def _interval(inputs: CheckInput, compared: RateCheck, rates: Rates, log_needed: float) -> tuple[float, float]:
    """Return the bounds of the rate ratio; that of a rate whose incidents are bounded looks worse by none of them."""
    low, high = ratio_interval(rates, INTERVAL_ALPHA)
    is_bounded = compared.is_incident_bounded and inputs.stage.rules >= Rules.INTERVALS
    if is_bounded and low > compared.tolerated_ratio:
        low = bounded_low(rates, low, log_needed, INTERVAL_ALPHA)
    return low, high


def _keys(inputs: CheckInput, compared: RateCheck, log_needed: float, suspicion: float) -> Keys:
    gains = gains_of(compared, log_needed)
    against_chance = log_rate_evidence_since(gains, compared.processes.firsts)
    together = log(compared.alpha_share) + compared.processes.together(against_chance)
    return Keys(
        together,
        log_needed,
        _across_entities(inputs, compared) if together >= suspicion else 0.0,
        compared.processes.leading_restart(against_chance),
    )


def gains_of(compared: RateCheck, log_needed: float) -> FloatArray:
    """Return what each window adds to each alternative, shape (windows, 24)."""
    rates = compared.rates
    if compared.explained is not None:
        rates = rates._replace(challenger=rates.challenger * compared.explained)
    if not compared.is_incident_bounded:
        return rate_gains(rates, compared.tolerated_ratio, log_needed / MIN_WINDOWS)
    return incident_bounded(rate_gains(rates, compared.tolerated_ratio, inf), log_needed)


def _across_entities(inputs: CheckInput, compared: RateCheck) -> float:
    """Return the second key's evidence.

    Some thirty entities that all fail are little to a z-score and much to a count, so processes within the present
    stage, each of which has a small share of alpha, are the mean of both.
    """
    processes = compared.processes
    buckets = compared.buckets()
    expected = expected_rates(buckets, compared.tolerated_ratio)
    changes_from = processes.stages if inputs.stage.rules >= Rules.CHANGES else None
    scores = cluster_z(buckets, expected, processes.firsts, changes_from)
    windows = np.maximum(len(inputs.strata.starts) - processes.firsts, 1).astype(np.float64)
    evidence = half_normal_log_evidence(scores, windows, inputs.policy.across_entities_alpha)
    is_recent = processes.firsts >= max(inputs.firsts[-1], _first_of_split(inputs))
    is_recent[: processes.stages] = False
    evidence[is_recent] = np.logaddexp(
        evidence[is_recent], rate_evidence_by_bucket(compared, processes.firsts[is_recent])
    ) - log(2)
    return processes.together(evidence)


def _first_of_split(inputs: CheckInput) -> int:
    """Return the first window that is wholly under the newest policy."""
    arrivals = inputs.strata.arrivals
    if not len(arrivals.start):
        return len(inputs.strata.starts)
    begins = arrivals.start[arrivals.policy_generation == arrivals.policy_generation.max()].min()
    return int(np.searchsorted(inputs.strata.starts, begins, side="right"))


def rate_evidence_by_bucket(compared: RateCheck, firsts: IntArray) -> FloatArray:
    """Return a rate's evidence since each of ``firsts`` if all bad events of the challenger's in a bucket are one.

    An entity is in each window it calls in, and all of a bucket's entities may be alike. The champion's are not made
    one, which only lowers the evidence. The split has to be the same in all windows since.
    """
    is_compared = ((compared.rates.champion > 0) & (compared.rates.challenger > 0))[:, None]
    failing = np.count_nonzero(suffix_sums(compared.buckets().value_challenger * is_compared, firsts), axis=1)
    since = Rates(*suffix_sums(np.column_stack(compared.rates) * is_compared, firsts).T)
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
