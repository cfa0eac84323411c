"""Recent regression: whether a challenger that was fine until now looks as if it had just begun to fail.

A rollback waits for evidence that no single incident makes. A step that is about to end can end a minute later instead,
so a suspicion is enough to hold it. Without this a challenger that breaks in the last minute of its step would get the
next share of the traffic, or all of it, for as long as the evidence takes.
"""

from math import inf, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.decision import Check
from understudy.core.canary.errors.error_rate import own_error_rate
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.evidence.rate_checks import RateCheck
from understudy.core.canary.latency.slow_tail import slow_tail
from understudy.core.statistics.cluster_test import cluster_z, expected_rates
from understudy.core.statistics.sequential_evidence import log_rate_evidence, rate_gains

RECENT_SECONDS = 60.0
EVIDENCE_NEEDED = 20.0
"""Equal versions have it in at most 5 % of the analyses of each of two checks, and are held for a minute by it."""
MIN_Z = 2.33
"""Across entities: otherwise one entity whose calls always fail would hold a rollout for ever."""


class RecentRegression(NamedTuple):
    """A rate of the last minute that looks worse."""

    check: Check
    champion: float
    challenger: float


def recent_regressions(inputs: CheckInput, now: float) -> list[RecentRegression]:
    """Return which rates look worse since a minute ago, of all windows that have begun."""
    first = inputs.strata.first_at(now - RECENT_SECONDS)
    compared = (own_error_rate(inputs), slow_tail(inputs))
    found = (_regression(rate, max(first, rate.processes.first)) for rate in compared)
    return [regression for regression in found if regression is not None]


def _regression(compared: RateCheck, first: int) -> RecentRegression | None:
    rates = compared.rates.cut(first)
    evidence = log_rate_evidence(rate_gains(rates, compared.tolerated_ratio, inf))
    if evidence < log(EVIDENCE_NEEDED):
        return None
    buckets = compared.buckets()
    expected = expected_rates(buckets, compared.tolerated_ratio)
    if cluster_z(buckets, expected, np.array([first]))[0] < MIN_Z:
        return None
    bad_champion, champion, bad_challenger, challenger = (float(column.sum()) for column in rates)
    return RecentRegression(compared.check, bad_champion / champion, bad_challenger / challenger)
