"""Sequential evidence (anytime-valid e-processes): an analysis may be made as often as one likes, without a schedule.

An *e-process* is a number that starts at 1, is expected not to grow while nothing is wrong, and grows without bound
when something is. By Ville's inequality it ever reaches ``1 / alpha`` with a chance of at most ``alpha`` while nothing
is wrong, so no interim analysis has to be planned. The processes of a rollout share its alpha (alpha spending). All
functions return natural logarithms.
"""

from collections.abc import Sequence
from math import exp, log, sqrt
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special
from understudy.core.statistics.suffix_sums import suffix_sums

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

RATIOS: FloatArray = np.geomspace(1.25, 50.0, 24)
"""The alternatives of the mixture: rate ratios, each with the same share of alpha (statistics page, §8)."""
TUNED_WINDOWS = 60.0
"""Windows at which the mixtures over z are sharpest; between 10 and 1,000 they lose little (statistics page, §8)."""
FIRST_ALPHA_SHARE = 0.4
"""Share of alpha that the rollout's first stage spends."""
RESTART_ALPHA_SHARE = 0.2
"""Share that processes which begin within stages spend; the later stages share the rest."""
ONE_STAGE_RESTART_ALPHA_SHARE = 0.6
"""The same where there is one stage alone, as of guards: what later stages have elsewhere. Before ADR 151 the one stage
had that besides its own."""
MAX_RESTARTS = 480
"""Of each schedule so many are kept, of the frequent one a day; the alpha share of older ones is lost, and a change
that old is no news."""

_LOG_RATIOS = np.log(RATIOS)
_GRID = np.linspace(log(1e-3), log(1e3), 121)
"""Logarithms of the ratios between which an interval's bounds are searched."""
_ODDS_STEP = 0.1
"""Windows whose logarithms of the odds differ by less share a cell when an interval is computed."""
_MAX_LOG = 690.0
"""Just below the logarithm of the largest float."""


def finite_exp(logarithm: float) -> float:
    """Return the evidence that a logarithm stands for, or the most that a float holds."""
    return exp(min(logarithm, _MAX_LOG))


def log_mean_exp(logarithms: FloatArray) -> FloatArray:
    """Return the logarithm of the mean of ``exp(logarithms)`` over the first axis, which never overflows.

    scipy's takes 170 µs a call, this one 10, and an analysis makes 25 of them.
    """
    largest = np.maximum.reduce(logarithms)
    found: FloatArray = largest + np.log(np.add.reduce(np.exp(logarithms - largest)) / len(logarithms))
    return found


class Rates(NamedTuple):
    """Bad events and the trials that they are of, for each window, shape (windows,) each."""

    bad_champion: FloatArray
    champion: FloatArray
    bad_challenger: FloatArray
    challenger: FloatArray

    def cut(self, first: int) -> "Rates":
        """Return the windows from ``first`` on."""
        return Rates(*(column[first:] for column in self))


def rate_gains(rates: Rates, tolerated_ratio: float, cap: float) -> FloatArray:
    """Return what each window adds to each alternative of :data:`RATIOS`, shape (windows, 24).

    Given that a window has k bad events, each is the challenger's with the chance ``q`` that the trials and the
    tolerated ratio give; an alternative says that it is more. Given k the count is hypergeometric, which is less spread
    than the binomial of the alternatives, so they gain no more than they should.

    Args:
        rates: A window in which one side has no trials adds nothing.
        tolerated_ratio: The rate ratio that is not worse yet.
        cap: The most that one window may add, so that no single incident decides. A cut only lowers the evidence.

    Source:
        Lindon and Malek, NeurIPS 2022, arXiv 2011.03567. Spread: Hoeffding 1963, theorem 4.
    """
    challenger = rates.challenger * tolerated_ratio
    trials = challenger + rates.champion
    share = np.divide(challenger, trials, out=np.zeros_like(trials), where=trials > 0)
    is_compared = (share > 0) & (share < 1)
    bad = np.where(is_compared, rates.bad_challenger + rates.bad_champion, 0.0)
    bad_challenger = np.where(is_compared, rates.bad_challenger, 0.0)
    gains = np.outer(bad_challenger, _LOG_RATIOS) - bad[:, None] * np.log1p(np.outer(share, RATIOS - 1))
    capped: FloatArray = np.minimum(gains, cap)
    return capped


def log_rate_evidence(gains: FloatArray) -> float:
    """Return the evidence of all windows: the mean over the alternatives."""
    return float(log_mean_exp(gains.sum(axis=0)))


def log_rate_evidence_since(gains: FloatArray, firsts: IntArray) -> FloatArray:
    """Return the evidence of the windows from each of ``firsts`` on, shape (firsts,)."""
    return log_mean_exp(suffix_sums(gains, firsts).T)


class Processes(NamedTuple):
    """Where the processes of one kind of evidence begin, and the alpha share of each.

    One that ran through healthy windows has lost what it needs to notice a change; a fresh one has not. So one begins
    with each stage, and others within stages, for a challenger that turns bad days after its step began.
    """

    firsts: IntArray
    """Index of the first window of each: of the stages, then of those within stages."""
    alpha_shares: FloatArray
    """Their shares, fixed before the rollout starts."""
    unspent_alpha: float
    """The share of those that have not begun: it is still there."""
    stages: int
    """How many are of stages."""

    @property
    def first(self) -> int:
        """The first window that any of them sees."""
        return int(self.firsts.min())

    def after(self, warm: int) -> "Processes":
        """Return the same, of which none sees a window before ``warm``."""
        return self._replace(firsts=np.maximum(self.firsts, warm))

    def together(self, log_evidence: FloatArray) -> float:
        """Return the evidence of all of them, given that of each."""
        values, alpha_shares = log_evidence, self.alpha_shares
        if self.unspent_alpha > 0:
            values, alpha_shares = np.append(values, 0.0), np.append(alpha_shares, self.unspent_alpha)
        largest = float(values.max())
        return largest + log(float(alpha_shares @ np.exp(values - largest)))

    def leading_restart(self, log_evidence: FloatArray) -> int | None:
        """Return the first window of the process within stages that says the most; ``None`` when a stage's does."""
        most = int(np.argmax(np.log(self.alpha_shares) + log_evidence))
        return int(self.firsts[most]) if most >= self.stages else None


class RestartSchedule(NamedTuple):
    """How often processes begin within stages, and the share of alpha that all of them have."""

    seconds: float
    alpha_share: float
    even_for: float = 0.0
    """About so many of them have shares alike, as :class:`Restarts` says."""


FREQUENT_RESTARTS = RestartSchedule(180.0, RESTART_ALPHA_SHARE)
"""The only ones of verdicts before ADR 67."""
RESTART_SCHEDULES = (
    RestartSchedule(FREQUENT_RESTARTS.seconds, 0.3 * RESTART_ALPHA_SHARE),
    RestartSchedule(3_600.0, 0.7 * RESTART_ALPHA_SHARE),
)
"""Often, for what is bad at once; and every hour, with most of the share, for what takes an hour to be seen: there have
been twenty times fewer of these, so a fresh one still has a larger part. Of verdicts before ADR 151."""


def even_schedules(planned: int) -> tuple[RestartSchedule, ...]:
    """Return the schedules of a rollout with so many stages; the hourly processes of half a day have shares alike.

    What breaks in the first hours is seen by the processes of the stages, which are young then; what breaks after a day
    has three times the share.
    """
    scale = ONE_STAGE_RESTART_ALPHA_SHARE / RESTART_ALPHA_SHARE if planned <= 1 else 1.0
    frequent, hourly = (one._replace(alpha_share=one.alpha_share * scale) for one in RESTART_SCHEDULES)
    return frequent, hourly._replace(even_for=12.0)


class Restarts(NamedTuple):
    """Processes of one schedule that have begun within stages."""

    newest: IntArray
    """Index of the first window of the newest ones, oldest first."""
    begun: int
    """How many have begun in all."""
    alpha_share: float = RESTART_ALPHA_SHARE
    """Of all of them together; those of all schedules come to :data:`RESTART_ALPHA_SHARE`, or to more of one stage."""
    even_for: float = 0.0
    """Of the first ones each has about the same share, of the later ones each less; 0: each less from the first on."""

    def alpha_shares(self) -> FloatArray:
        """Return the share of each of the newest ones; those of all that ever begin come to ``alpha_share``."""
        before = np.arange(self.begun - len(self.newest), self.begun, dtype=np.float64)
        return self.alpha_share * (self._left(before) - self._left(before + 1))

    @property
    def unspent_alpha(self) -> float:
        """The share of those that have not begun."""
        return self.alpha_share * float(self._left(np.array(float(self.begun))))

    def _left(self, begun: FloatArray) -> FloatArray:
        """Return the part that is left once so many have begun, 1 to 0."""
        left: FloatArray = 1 / np.log2(begun + 2) if self.even_for == 0 else (1 + begun / self.even_for) ** -0.5
        return left


def first_stage_alpha_share(*, has_restarts: bool) -> float:
    """Return the share of alpha that the evidence of a rollout's first stage has."""
    return FIRST_ALPHA_SHARE if has_restarts else FIRST_ALPHA_SHARE / (1 - RESTART_ALPHA_SHARE)


def processes_of(stages: Sequence[int], planned: int, restarts: Sequence[Restarts] = ()) -> Processes:
    """Return the processes of a rollout.

    Args:
        stages: Index of the first window of each stage begun; stages beyond the planned ones are left out.
        planned: How many stages the rollout has.
        restarts: Processes begun within stages, by schedule; none where none ever does. The alpha share of older
            ones than the newest is lost.

    Returns:
        The k-th restart has the share ``1 / log2(k + 1) - 1 / log2(k + 2)`` of its schedule's, or ``1 / sqrt(1 + (k -
        1) / m) - 1 / sqrt(1 + k / m)`` where the first m are to have shares alike. Either comes to 1 for all k: a month
        after the start a fresh process still has a ten-millionth of the whole.
    """
    planned = max(planned, 1)
    begun = min(len(stages), planned)
    later = (1 - FIRST_ALPHA_SHARE - RESTART_ALPHA_SHARE) / max(planned - 1, 1)
    alpha_shares = np.full(begun, later)
    within = round(sum(one.alpha_share for one in restarts), 9) if restarts else RESTART_ALPHA_SHARE
    alpha_shares[0] = FIRST_ALPHA_SHARE if planned > 1 else 1 - within
    unspent_alpha = later * (planned - begun)
    firsts = np.array(stages[:begun], np.int64)
    if not restarts:
        share = 1 - RESTART_ALPHA_SHARE
        return Processes(firsts, alpha_shares / share, unspent_alpha / share, begun)
    for one in restarts:
        firsts = np.append(firsts, one.newest)
        alpha_shares = np.append(alpha_shares, one.alpha_shares())
        unspent_alpha += one.unspent_alpha
    return Processes(firsts, alpha_shares, unspent_alpha, begun)


@overload
def half_normal_log_evidence(z: float, windows: float, alpha: float) -> float: ...
@overload
def half_normal_log_evidence(z: FloatArray, windows: FloatArray, alpha: float) -> FloatArray: ...
def half_normal_log_evidence(z: float | FloatArray, windows: float | FloatArray, alpha: float) -> float | FloatArray:
    """Return the evidence of a z-score after so many windows that its mean is above 0; of one, or of each of several.

    The mixture over drifts of one sign, tuned to :data:`TUNED_WINDOWS` and ``alpha``.

    Source:
        Robbins 1970; tuning: Waudby-Smith et al., arXiv 2103.06476, appendix B.2 (with alpha doubled for one side).
    """
    spread = windows * (_density(2 * alpha) / TUNED_WINDOWS)
    shrunk = spread / (1 + spread)
    found: FloatArray = log(2) - np.log1p(spread) / 2 + z * z * shrunk / 2 + special.log_ndtr(z * np.sqrt(shrunk))
    return found


def mixture_radius(windows: float, alpha: float) -> float:
    """Return how many standard errors a mean is from its estimate at most, at all looks together but ``alpha`` of them.

    Source:
        Waudby-Smith et al., arXiv 2103.06476, theorem 2.2.
    """
    spread = windows * _density(alpha) / TUNED_WINDOWS
    return sqrt((1 + 1 / spread) * (log(1 + spread) - 2 * log(alpha)))


def _density(alpha: float) -> float:
    doubled = -2 * log(alpha)
    return doubled + log(doubled + 1)


def ratio_interval(rates: Rates, alpha: float) -> tuple[float, float]:
    """Return bounds of the rate ratio that hold at all looks together with a chance of ``1 - alpha``.

    Returns:
        The smallest and the largest ratio that neither one-sided process rejects at ``alpha / 2``; 0 and infinity where
        nothing is known.
    """
    used = (rates.champion > 0) & (rates.challenger > 0) & (rates.bad_champion + rates.bad_challenger > 0)
    if not used.any():
        return 0.0, float("inf")
    bad_champion, champion, bad_challenger, challenger = (column[used] for column in rates)
    bad = bad_champion + bad_challenger
    log_odds = np.log(challenger / champion)
    cells, place = np.unique(np.floor(log_odds / _ODDS_STEP), return_inverse=True)
    cell_bad = np.bincount(place, bad, len(cells))
    odds = np.exp(np.bincount(place, bad * log_odds, len(cells)) / cell_bad)

    reach = _LOG_RATIOS[-1]
    ratios = np.linspace(_GRID[0] - reach, _GRID[-1] + reach, 2 * len(_GRID))
    likelihood = bad_challenger.sum() * ratios - np.log1p(np.outer(np.exp(ratios), odds)) @ cell_bad
    needed = log(2 / alpha)

    def evidence(sign: int) -> FloatArray:
        """Return the evidence against each ratio of the grid, for a higher (1) or a lower (-1) one."""
        alternatives = np.interp((_GRID + sign * _LOG_RATIOS[:, None]).ravel(), ratios, likelihood).reshape(
            -1, len(_GRID)
        )
        return log_mean_exp(alternatives - np.interp(_GRID, ratios, likelihood))

    return _bound(_GRID, evidence(1), needed, 0.0), _bound(_GRID[::-1], evidence(-1)[::-1], needed, float("inf"))


def _bound(grid: FloatArray, evidence: FloatArray, needed: float, none: float) -> float:
    """Return the last ratio along the grid that is rejected, between its points; ``none`` when none is."""
    rejected = np.flatnonzero(evidence >= needed)
    if len(rejected) == 0:
        return none
    last = int(rejected[-1])
    following = min(last + 1, len(grid) - 1)
    fall = float(evidence[last] - evidence[following])
    part = (float(evidence[last]) - needed) / fall if fall > 0 else 0.0
    return float(np.exp(grid[last] + part * (grid[following] - grid[last])))
