"""Which regression of the error rate the traffic so far could have shown, and how far it is to the policy's."""

from math import inf
from typing import NamedTuple

import numpy as np

from understudy.core.canary.errors.error_rate import error_rate
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.statistics.detectable_effect import (
    DetectionThreshold,
    Exposure,
    missing_trials,
    smallest_detectable,
)
from understudy.core.statistics.sequential_evidence import first_stage_alpha_share


class Detectability(NamedTuple):
    """What the traffic so far could have shown."""

    ratio: float
    """The smallest error ratio that would have been found; infinite without traffic."""
    asked_ratio: float
    """The one that the policy asks about at this weight."""
    missing_requests: int | None
    """Challenger requests until ``asked_ratio`` would be found; ``None`` if it would be by now, or without traffic."""

    @property
    def is_enough(self) -> bool:
        """Whether the regression that the policy asks about would have been found by now."""
        return self.ratio <= self.asked_ratio


def detectability(inputs: CheckInput, log_needed: float) -> Detectability:
    """Return what could have been found with this much evidence needed."""
    compared = error_rate(inputs).rates
    asked_ratio = inputs.policy.detectable_ratio_at(inputs.stage.weight_percent)
    borders = sorted({first for first in inputs.firsts if first < len(compared.champion)})
    if inputs.firsts[0] not in borders:
        return Detectability(inf, asked_ratio, None)
    champion, challenger = (np.add.reduceat(column, borders) for column in (compared.champion, compared.challenger))
    trials, requests = float(challenger.sum()), float(inputs.strata.challenger["calls"].sum())
    if not (trials and champion.sum()):
        return Detectability(inf, asked_ratio, None)
    exposure = Exposure(champion, challenger, len(compared.champion) - borders[0])
    threshold = DetectionThreshold(
        log_needed,
        inputs.policy.across_entities_alpha,
        inputs.policy.tolerated_error_ratio,
        max(float(compared.bad_champion.sum() / champion.sum()), inputs.policy.error_rate_floor),
        first_stage_alpha_share(has_restarts=bool(inputs.restarts)),
    )
    ratio = smallest_detectable(exposure, threshold)
    missing = 0 if ratio <= asked_ratio else missing_trials(exposure, threshold, asked_ratio)
    return Detectability(ratio, asked_ratio, round(missing * requests / trials) or None)
