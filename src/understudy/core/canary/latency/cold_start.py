"""Cold start: whether a challenger is slow because its server's caches are empty, and when it has got warm.

The share of the calls that a cache answers rises fastest at first. So what a server that gets warm takes longer than
the champion shrinks by a fixed share in each minute, and the logarithm of the ratio falls by a known slope. A version
that is slow by itself does not fall. Which of the two it is its first minutes show; until then, and while it falls, a
check of latency that would fail is ``warming``. Errors are judged as always.
"""

from math import exp, log
from typing import NamedTuple

import numpy as np

from understudy.core.canary.evidence.check_input import CheckInput
from understudy.core.canary.latency.typical_latency import latency_moments, latency_noise
from understudy.core.canary.limits import Rules
from understudy.core.statistics.mean_shift import Moments
from understudy.core.statistics.pod_noise import PodNoise
from understudy.core.statistics.sequential_evidence import FloatArray
from understudy.core.statistics.trend import Trend, trend_of

WARMING_SECONDS = 1_800.0
"""From a version's first calls in a rollout or guard: so long it may be warming, and not longer."""
FALL_SECONDS = 720.0
"""In so long what a version takes longer has to fall to 1/e at least, so that a twelfth is left when time is over."""
PROVEN_Z = 3.0
"""A fall of so many standard errors is one."""
REFUTED_Z = 2.75
"""A slope that is so many standard errors above the one that it takes is none of a version that gets warm."""
MIN_CALLS = 60
"""Recent answered calls of the challenger below which its slope refutes nothing: of so few a handful decides."""
FALLING_Z = 1.28
"""A fall of so many standard errors is a reason to wait for what a small ratio comes to."""
RECENT_SECONDS = 600.0
"""Of a version that surely fell only the last minutes say whether it still does."""
FEW_CALLS = 200
"""Answered calls of the challenger up to which any ratio may be one of a cold server: so many must be recent, too."""
CLEAR_RATIO = 1.6
"""Beyond so few calls a smaller ratio is that of a slow version unless it falls. To see that 1.5 does not fall would
take twice the calls in which a version that slow is to be found."""
MAX_RATIO = 5.0
"""No empty cache makes more of it: what is slower is taken back at once."""
LOOK_SECONDS = 300.0
"""How often it is asked whether it fell since its first calls; what was once found stays found."""


class ColdStart(NamedTuple):
    """What the latency since a version's first calls says of its server's caches."""

    first: int
    """Index of the first window whose latency counts."""
    was_cold: bool = False
    """Whether it surely fell, so that the windows before the first one are left out."""
    warming: Trend | None = None
    """Of the latest minutes of a challenger that may be getting warm; ``None`` when it is not, or no longer."""
    ends_at: float = 0.0
    """When it may no longer be warming, in seconds since the epoch."""


class _Since(NamedTuple):
    """The windows from the first one on in which both sides answered and latency counts."""

    first: int
    seconds: FloatArray
    moments: Moments
    noise: PodNoise

    def trend(self, first: int, end: int) -> Trend | None:
        moments = Moments(*(column[first:end] for column in self.moments))
        return trend_of(self.seconds[first:end], moments, self.noise)

    def at(self, seconds: float) -> int:
        """Return the index of the first window that begins then or later."""
        return int(np.searchsorted(self.seconds, seconds))


def cold_start(inputs: CheckInput, now: float) -> ColdStart:
    """Return from which window on latency counts, and whether the challenger may be getting warm.

    ``inputs`` has the windows that are closed; ``now`` is in seconds since the epoch.
    """
    since = _since_first_calls(inputs) if inputs.stage.rules >= Rules.COLD else None
    if since is None:
        return ColdStart(inputs.warm)
    begun_at = float(since.seconds[0])
    ends_at = begun_at + WARMING_SECONDS
    end = since.at(ends_at)
    fell = _surely_fell(since, begun_at, end)
    if now >= ends_at:
        return ColdStart(since.first + end if fell else inputs.warm, fell)
    first = _first_recent(since) if fell else 0
    recent = since.trend(first, end)
    may_be = recent is not None and _may_be_warming(recent, since, inputs, surely_fell=fell)
    return ColdStart(since.first + first if fell else inputs.warm, fell, recent if may_be else None, ends_at)


def _since_first_calls(inputs: CheckInput) -> _Since | None:
    champion, challenger = inputs.strata.champion, inputs.strata.challenger
    both = (champion.answered > 0) & (challenger.answered > 0)
    both[: inputs.warm] = False
    if not both.any():
        return None
    first = int(np.argmax(both))
    moments = latency_moments(inputs).cut(first)
    return _Since(first, inputs.strata.starts[first:].astype(np.float64), moments, latency_noise(inputs))


def _surely_fell(since: _Since, begun_at: float, end: int) -> bool:
    """Return whether it fell from the first calls to any of a few moments, or to now, within the time for it."""
    numbers = range(1, int(WARMING_SECONDS / LOOK_SECONDS) + 1)
    looks = {min(end, since.at(begun_at + LOOK_SECONDS * number)) for number in numbers}  # one that is to come is now
    trends = (since.trend(0, look) for look in sorted(looks))
    return any(trend is not None and trend.z <= -PROVEN_Z for trend in trends)


def _first_recent(since: _Since) -> int:
    """Return where the latest minutes begin: so many that they have enough calls."""
    calls = np.cumsum(since.moments.challenger[::-1])
    enough = len(calls) - 1 - int(np.searchsorted(calls, FEW_CALLS))
    return max(0, min(enough, since.at(float(since.seconds[-1]) - RECENT_SECONDS)))


def _may_be_warming(recent: Trend, since: _Since, inputs: CheckInput, *, surely_fell: bool) -> bool:
    if not log(inputs.policy.tolerated_latency_ratio) <= recent.level < log(MAX_RATIO):
        return False
    is_falling = surely_fell or recent.z <= -FALLING_Z
    is_early = recent.level >= log(CLEAR_RATIO) or since.moments.challenger.sum() < FEW_CALLS
    needed = -(1 - exp(-recent.level)) / FALL_SECONDS
    is_refuted = recent.calls >= MIN_CALLS and recent.slope - REFUTED_Z * recent.error > needed
    return (is_falling or is_early) and not is_refuted
