"""Glance: whether the last two minutes of a guard look worse, which takes no more time after a month than at first.

An analysis takes time in proportion to all windows since the guard began. A guard that has been calm for long is
analysed every few minutes, and glanced at in between: what turns bad at once is seen here and analysed at once. A
glance decides nothing, so it may be wrong now and then; it only chooses moments at which the analysis is made.
"""

from math import inf, log

import numpy as np

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.statistics.sequential_evidence import FloatArray, Rates, log_rate_evidence, rate_gains
from understudy.core.windows.strata import Strata

GLANCE_SECONDS = 120.0
"""How far it looks back."""
EVIDENCE_NEEDED = 20.0
"""Of errors, as of a recent regression: equal versions have it in at most 5 % of the glances."""
LATENCY_RATIO = 2.0
"""Pods that wander by a fifth are hardly ever that far apart, and what is less can wait for the next analysis."""


def looks_worse(strata: Strata, policy: CanaryPolicy, now: float) -> bool:
    """Return whether the errors or the latency of the last minutes are a reason for an analysis.

    Args:
        strata: At least the windows of the last :data:`GLANCE_SECONDS`; one that is still open counts as well.
        policy: What is tolerated.
        now: Seconds since the epoch.
    """
    recent = strata.begun_by(now)
    first = recent.first_at(now - GLANCE_SECONDS)
    champion, challenger = (side.cut(first, len(recent.starts)) for side in (recent.champion, recent.challenger))
    errors = Rates(
        champion["error_entities"], champion["entities"], challenger["error_entities"], challenger["entities"]
    )
    if log_rate_evidence(rate_gains(errors, policy.tolerated_error_ratio, inf)) >= log(EVIDENCE_NEEDED):
        return True
    numbers = (champion.answered, challenger.answered)
    shift = _shift(np.stack(numbers), np.stack([champion["log_latency"], challenger["log_latency"]]))
    return shift >= log(LATENCY_RATIO)


def _shift(answered: FloatArray, log_latency: FloatArray) -> float:
    """Return how far the challenger's mean is above the champion's within windows, as a logarithm; 0 without any."""
    both = (answered > 0).all(axis=0)
    if not both.any():
        return 0.0
    champion, challenger = log_latency[:, both] / answered[:, both]
    weights = answered[:, both].prod(axis=0) / answered[:, both].sum(axis=0)
    return float(weights @ (challenger - champion) / weights.sum())
