"""Early failure: whether a challenger has failed nearly every entity since its first calls.

What a window may add to the evidence is capped (:mod:`understudy.core.canary.evidence.rate_checks`), so that no single
incident rolls back a challenger that served well before. A challenger that has hardly answered at all has no such time
behind it: its evidence counts uncapped, and the window that is still open counts as well. The failure has to have
lasted for some seconds, in which connections are opened and models are loaded, and to have met entities that are
independent.
"""

from math import inf, log

import numpy as np

from understudy.core.canary.evidence.check_input import CheckInput, Keys
from understudy.core.canary.evidence.rate_checks import RateCheck, rate_evidence_by_bucket
from understudy.core.statistics.sequential_evidence import log_rate_evidence, rate_gains

EARLY_FAILURE_ALPHA_SHARE = 0.05
"""Early failure's share of the error rate's alpha, fixed before the rollout starts; the windows have the rest."""
FAILED_RATIO = 0.8
"""Share of the entities that met the challenger whose calls it failed. After fifteen seconds in which it served well it
takes a minute of failures to get there, and by then the windows show them."""
MIN_BUCKETS = 5
"""Analysis buckets with failing entities, and so the least number of these."""
MIN_SECONDS = 10.0
"""Since its first share. A version that is slow to come up fails its first callers and serves the next ones."""


def early_failure(inputs: CheckInput, errors: RateCheck, log_needed: float, now: float) -> Keys | None:
    """Return the evidence that the challenger fails from its first calls on; ``None``: there is not enough.

    ``inputs`` has all windows that have begun; ``log_needed`` is a logarithm.
    """
    rates = errors.rates.cut(inputs.firsts[0])
    failing = float(rates.bad_challenger.sum())
    has_lasted = now - inputs.stage.starts[0] >= MIN_SECONDS
    if not has_lasted or failing < FAILED_RATIO * rates.challenger.sum():
        return None
    buckets = int(np.count_nonzero(errors.buckets().value_challenger[inputs.firsts[0] :].any(axis=0)))
    if buckets < MIN_BUCKETS:
        return None
    against_chance = log_rate_evidence(rate_gains(rates, errors.tolerated_ratio, inf))
    across_entities = float(rate_evidence_by_bucket(errors, np.array([inputs.firsts[0]]))[0])
    keys = Keys(log(EARLY_FAILURE_ALPHA_SHARE) + against_chance, log_needed, across_entities)
    is_enough = keys.against_chance >= log_needed and across_entities >= -log(inputs.policy.across_entities_alpha)
    return keys if is_enough else None
