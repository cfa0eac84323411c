"""Calm looks: those of a simulated rollout that provably take nothing back, so that no analysis has to be made.

Of a rollout of equal versions that is what nearly all looks find, and an analysis of five hours takes 8 ms. Traffic is
drawn ahead, and what a window adds to the evidence against chance does not change with later ones. So it is added up
once for all looks at these windows, and a look is calm where no check can have the evidence against chance that it
needs, whichever windows its processes begin with, and the split is the policy's. A check that may have it is judged
alone, and where it fails a whole analysis is made. Only rounding is allowed for. That nothing but time is saved is a
test of its own (:mod:`stats.test_calm_looks`).
"""

from math import log

import numpy as np
from numpy.typing import NDArray

from understudy.core.canary.analysis import check_input, compared_at
from understudy.core.canary.checks import judged_checks, needed_of
from understudy.core.canary.decision import CheckState
from understudy.core.canary.errors.early_failure import FAILED_RATIO
from understudy.core.canary.errors.error_rate import ERROR_RATE, own_error_rate
from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.evidence.rate_checks import RateCheck, gains_of
from understudy.core.canary.latency.cold_start import LOOK_SECONDS, PROVEN_Z, WARMING_SECONDS
from understudy.core.canary.latency.latency_change import LATENCY_CHANGE, latency_units
from understudy.core.canary.latency.slow_percentiles import SLOW_P99, SLOW_P999, slow_percentile
from understudy.core.canary.latency.slow_tail import SLOW_TAIL, slow_tail
from understudy.core.canary.latency.typical_latency import TYPICAL_LATENCY, latency_moments
from understudy.core.canary.limits import NEWEST_RULES, CanaryPolicy, Stage
from understudy.core.canary.sample_ratio_check import judge_sample_ratio
from understudy.core.statistics.mean_shift import Moments
from understudy.core.statistics.own_past import SPANS, UNIT_SECONDS
from understudy.core.statistics.sequential_evidence import FloatArray, IntArray
from understudy.core.statistics.trend import trend_of
from understudy.core.windows.strata import Strata
from understudy.core.windows.window import WINDOW_SECONDS

Mask = NDArray[np.bool_]
ROUNDING = 1e-6
"""Of logarithms that are added up in another order."""


class CalmLooks:
    """Which looks are calm until the next windows are drawn or the next stage begins.

    Args:
        strata: Of all windows drawn so far, without a gap.
        policy: The limits of the stage.
        stage: Where the rollout stands at these looks.
    """

    def __init__(self, strata: Strata, policy: CanaryPolicy, stage: Stage) -> None:
        self._strata, self._policy, self._stage = strata, policy, stage
        self._needed = needed = needed_of(policy, stage.rules)
        inputs = check_input(strata, policy, stage)
        rates = {
            ERROR_RATE: own_error_rate(inputs),
            SLOW_TAIL: slow_tail(inputs),
            **{check: slow_percentile(inputs, check) for check in (SLOW_P99, SLOW_P999)},
        }
        self.cannot_fail: dict[str, Mask] = {
            TYPICAL_LATENCY.name: _is_no_slower(inputs),
            LATENCY_CHANGE.name: _did_not_slow_down(inputs),
            **{
                check.name: _has_no_evidence(inputs, rate, needed.get(check.name, 0.0)) for check, rate in rates.items()
            },
        }
        """By check, and by how many windows are closed, from none on."""
        is_known = needed.keys() == self.cannot_fail.keys() and stage.rules == NEWEST_RULES
        self._is_any_calm = is_known and _is_split(inputs)
        self._when_begun = _fails_no_early_calls(inputs)

    def has(self, now: float) -> bool:
        """Return whether an analysis at a moment would neither take the challenger back nor find the split invalid."""
        if not (self._is_any_calm and self._when_begun[self._by(now)]):
            return False
        closed = self.closed(now)
        suspected = {name: most for name, most in self._needed.items() if not self.cannot_fail[name][closed]}
        if not suspected:
            return True
        found = compared_at(self._strata, self._policy, self._stage, now, self._needed[ERROR_RATE.name])
        return all(row.state is not CheckState.FAIL for row in judged_checks(found.inputs, suspected))

    def closed(self, now: float) -> int:
        """Return how many windows an analysis judges."""
        return self._by(now - self._policy.watermark_seconds - WINDOW_SECONDS)

    def _by(self, now: float) -> int:
        return int(np.searchsorted(self._strata.starts, now, side="right"))


def _sums_before(values: FloatArray) -> FloatArray:
    """Return the sums over the windows before each one, and over all of them."""
    return np.concatenate([np.zeros((1, *values.shape[1:])), values.cumsum(axis=0)])


def _is_split(inputs: CheckInput) -> bool:
    """Return whether the split was the policy's at all moments: what is kept of it is the most evidence so far."""
    split = judge_sample_ratio(inputs)
    return log(split.evidence or 1.0) < log(split.evidence_needed or 1.0) - ROUNDING


def _fails_no_early_calls(inputs: CheckInput) -> Mask:
    rates, first = own_error_rate(inputs).rates, inputs.firsts[0]
    failing, met = (_sums_before(column[first:]) for column in (rates.bad_challenger, rates.challenger))
    return np.append(np.zeros(first, np.bool_), failing < FAILED_RATIO * met - ROUNDING)


def _has_no_evidence(inputs: CheckInput, compared: RateCheck | None, log_needed: float) -> Mask:
    """Return where no alternative has what is needed since any window: then no mean over them and no process has it.

    What the typical latency explains of slow answers is left out, which only adds evidence.
    """
    if compared is None:
        return np.ones(len(inputs.strata.starts) + 1, np.bool_)
    sums = _sums_before(gains_of(compared, log_needed))
    most: FloatArray = (sums - np.minimum.accumulate(sums)).max(axis=1)
    return most < log_needed - ROUNDING


def _is_no_slower(inputs: CheckInput) -> Mask:
    """Return where the mean latency is within the tolerated one since each window that latency may count from.

    Those are the first ones of stages and, of a server that may have been cold, all of its first half an hour.
    """
    moments = latency_moments(inputs)
    both = (moments.champion > 0) & (moments.challenger > 0)
    both[: inputs.warm] = False
    used = Moments(*(column[both] for column in moments))
    weights = used.champion * used.challenger / (used.champion + used.challenger)
    differences = used.challenger_sum / used.challenger - used.champion_sum / used.champion
    beyond = np.zeros(len(both))
    beyond[both] = weights * (differences - log(inputs.policy.tolerated_latency_ratio) + ROUNDING)
    sums = _sums_before(beyond)
    firsts = inputs.processes_of_stages().after(inputs.warm).firsts
    is_no_slower = _is_lowest(sums, firsts)
    if both.any():
        first = int(np.argmax(both))
        warm = _at(inputs.strata, first, WARMING_SECONDS)
        was_cold = _may_have_been_cold(inputs, first, warm)
        is_no_slower &= ~was_cold | _is_lowest(sums, np.append(firsts, np.arange(first, warm + 1)))
    return is_no_slower


def _is_lowest(sums: FloatArray, firsts: IntArray) -> Mask:
    """Return where a sum is at most as high as at each of ``firsts`` before."""
    befores = np.full(len(sums), np.inf)
    befores[firsts] = sums[firsts]
    return sums <= np.minimum.accumulate(befores)


def _at(strata: Strata, first: int, seconds: float) -> int:
    """Return the first window that begins so long after another one, or later."""
    return int(np.searchsorted(strata.starts, strata.starts[first] + seconds))


def _may_have_been_cold(inputs: CheckInput, first: int, warm: int) -> Mask:
    """Return where the latency may have fallen since the first calls as that of a cold server does.

    How far pods wander is left out, which only makes a fall surer: where the product finds one, it is found here.
    """
    is_fall = np.zeros(len(inputs.strata.starts) + 1, np.bool_)
    is_fall[first : warm + 1] = True
    looks = int(WARMING_SECONDS / LOOK_SECONDS)
    kept = sorted({_at(inputs.strata, first, LOOK_SECONDS * number) for number in range(1, looks + 1)})
    seconds, moments = inputs.strata.starts.astype(np.float64), latency_moments(inputs)
    # In later stages only the looks that stay are asked; at other moments of the first half hour it may have fallen.
    for end in range(first + 1, warm + 1) if len(inputs.firsts) == 1 else kept:
        found = trend_of(seconds[first:end], Moments(*(column[first:end] for column in moments)))
        is_fall[end] = found is not None and found.z <= ROUNDING - PROVEN_Z
    stays = np.zeros(len(is_fall), np.bool_)
    stays[kept] = is_fall[kept]
    return is_fall | np.logical_or.accumulate(stays)


def _did_not_slow_down(inputs: CheckInput) -> Mask:
    """Return where no mean of the last minutes is what it has to be at least; without the largest it is smaller yet."""
    units = latency_units(inputs._replace(firsts=(0,), warm=0))
    sums = _sums_before(units.challenger - units.champion)
    least = log(inputs.policy.lone_latency_ratio) - ROUNDING
    is_calm = np.ones(len(sums), np.bool_)
    for span in SPANS:
        is_calm[span:] &= sums[span:] - sums[:-span] < span * least
    ends = units.first_windows + UNIT_SECONDS // WINDOW_SECONDS
    return is_calm[np.searchsorted(ends, np.arange(len(inputs.strata.starts) + 1), side="right")]
