"""Whether a challenger that was fine until now looks as if it had just begun to fail: no moment to give it more.

A rollback waits for evidence that no single incident makes. A step that ends need not: it can end a minute later, so a
suspicion is enough to hold it. Without this a challenger that breaks in the last minute of its step would get the next
share, or every call, for as long as the evidence takes.
"""

from math import inf, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.check_input import Look
from understudy.core.canary.decision import Check
from understudy.core.canary.rate_checks import RateCheck, error_rate, slow_tail
from understudy.core.statistics.cluster_test import cluster_z, expected_rates
from understudy.core.statistics.sequential_evidence import log_rate_evidence, rate_gains

LATELY_SECONDS = 60.0
EVIDENCE_NEEDED = 20.0
"""Of each of two checks equal versions have it at 5 % of looks at most, and are held by it for a minute."""
MIN_Z = 2.33
"""Across entities; one of them that always fails would hold a rollout for ever."""


class Suspicion(NamedTuple):
    """A rate of the last minute that looks worse."""

    check: Check
    champion: float
    challenger: float


def suspicions(look: Look, now: float) -> list[Suspicion]:
    """Return which rates look worse since a minute ago.

    Args:
        look: At all windows that have begun.
        now: Seconds since the epoch.
    """
    first = look.strata.first_at(now - LATELY_SECONDS)
    found = (
        _suspicion(compared, max(first, compared.processes.first)) for compared in (error_rate(look), slow_tail(look))
    )
    return [suspicion for suspicion in found if suspicion is not None]


def _suspicion(compared: RateCheck, first: int) -> Suspicion | None:
    rates = compared.rates.cut(first)
    evidence = log_rate_evidence(rate_gains(rates, compared.tolerated_ratio, inf))
    if evidence < log(EVIDENCE_NEEDED):
        return None
    expected = expected_rates(compared.buckets, compared.tolerated_ratio)
    if cluster_z(compared.buckets, expected, np.array([first]))[0] < MIN_Z:
        return None
    bad_champion, champion, bad_challenger, challenger = (float(column.sum()) for column in rates)
    return Suspicion(compared.check, bad_champion / champion, bad_challenger / challenger)
