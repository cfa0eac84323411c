"""Sample size of a test: entities that an arm needs, power, looks and their boundaries (alpha spending), duration."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import ceil, floor, log, log1p, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from understudy.core import special_functions as special

FloatArray = NDArray[np.float64]

ALPHA = 0.05
"""Chance of a winner where there is no difference, both directions together. Source: seed 003, ``analyze``."""
POWER_RATIO = 0.80
"""Chance to see the effect that was planned for. Source: seed 003, ``required_sample_size``."""
FIVE_LOOKS = (0.2, 0.4, 0.6, 0.8, 1.0)
"""The looks of a test that may end early, as shares of its planned entities."""
MAX_FORECAST_DAYS = 3_650
MIN_ENTITIES = 2
"""Of an arm, below which it has no variance."""
REFERENCE_ONE_SAMPLE = {0.01: 78_400, 0.02: 19_600, 0.05: 3_137, 0.10: 785, 0.15: 349, 0.20: 197}
"""Seed 003's table by effect: the sample of *one* group that is compared with a known value."""

_CERTAIN = 30.0
"""Standard errors at which the power is 1 to the last digit; far beyond, scipy's function is NaN."""
_MIN_NODES = 64
_MAX_NODES = 1_000
"""Twenty looks take 0.4 s of a processor with them."""
_NODES_PER_STEP = 3.0
"""Nodes of the quadrature for each standard deviation of one step; 6 change no boundary by 1e-9."""
_MAX_SEARCHED = 10**9
"""Entities from which on the normal approximation is Student's t to the last entity that matters."""
_MAX_ENTITIES = 10**15


class Effect(NamedTuple):
    """A difference of B from A to be seen, and the variance of one entity's value in each arm, in the same unit."""

    difference: float
    variance_a: float
    variance_b: float


class Forecast(NamedTuple):
    """When the answer will be known: in ``days``, 0 for now and ``None`` for never as things are; and in words."""

    days: int | None
    sentence: str


class ReferenceSampleSize(NamedTuple):
    """Seed 003's sample size for an effect, what it is worth with two arms, and the size that two arms need."""

    entities_per_arm: int
    power_ratio: float
    two_sample_entities_per_arm: int
    sentence: str


def relative_change(ratio: float) -> Effect:
    """Return a change of a mean by a share of itself (0.05 for 5 %), in units of A's mean.

    One entity's standard deviation is taken to be its mean, as seed 003's table takes for granted: a relative change is
    then the same as one in standard deviations.
    """
    return Effect(ratio, 1.0, 1.0)


def welch_degrees_of_freedom(error_a: float, freedom_a: float, error_b: float, freedom_b: float) -> float:
    """Return the degrees of freedom of a difference from its parts' squared standard errors, not both 0, and their own.

    Source:
        Welch, "The generalization of 'Student's' problem when several different population variances are involved",
        Biometrika 34 (1947).
    """
    return (error_a + error_b) ** 2 / (error_a**2 / freedom_a + error_b**2 / freedom_b)


def power_of(effect: Effect, entities_a: float, entities_b: float, alpha: float = ALPHA) -> float:
    """Return the chance (0-1) that a two-sided test of these sizes sees the effect; 0 below two entities an arm.

    Source:
        Noncentral t: Cohen, *Statistical Power Analysis for the Behavioral Sciences* (1988), §2; here with Welch's
        degrees of freedom, because the test itself has them.
    """
    if min(entities_a, entities_b) < MIN_ENTITIES:
        return 0.0
    error_a, error_b = effect.variance_a / entities_a, effect.variance_b / entities_b
    if error_a + error_b == 0:
        return float(effect.difference != 0)
    freedom = welch_degrees_of_freedom(error_a, entities_a - 1, error_b, entities_b - 1)
    shift = min(abs(effect.difference) / sqrt(error_a + error_b), _CERTAIN)
    critical = special.stdtrit(freedom, 1 - alpha / 2)
    # Where it is below 1e-8, scipy may give NaN for the tail of the wrong direction.
    wrong_direction = np.nan_to_num(special.nctdtr(freedom, shift, -critical), nan=0.0)
    return float(1 - special.nctdtr(freedom, shift, critical) + wrong_direction)


def entities_per_arm(effect: Effect, power_ratio: float = POWER_RATIO, alpha: float = ALPHA) -> int:
    """Return the entities that each of two equal arms needs to see an effect.

    For relative changes of 1, 2, 5, 10, 15 and 20 % it is 156,979, 39,246, 6,281, 1,571, 699 and 394.

    Raises:
        ValueError: If the effect is zero, or ``power_ratio`` is not between ``alpha`` and 1.

    Source:
        The smallest n with :func:`power_of` at least ``power_ratio``, looked for from the normal approximation upwards;
        that is about ``z² / 4`` short of it (Guenther, The American Statistician 35 (1981)).
    """
    if effect.difference == 0:
        raise ValueError("no number of entities shows a difference of zero")
    if not alpha < power_ratio < 1:
        raise ValueError(f"the power lies between alpha ({alpha:g}) and 1, not at {power_ratio:g}")
    needed = (normal_quantile(1 - alpha / 2) + normal_quantile(power_ratio)) / effect.difference
    by_normal = min(needed * needed * (effect.variance_a + effect.variance_b), _MAX_ENTITIES)
    entities = max(MIN_ENTITIES, floor(by_normal))
    while entities < _MAX_SEARCHED and power_of(effect, entities, entities, alpha) < power_ratio:
        entities += 1
    return entities


def reference_sample_size(ratio: float) -> ReferenceSampleSize:
    """Return seed 003's figure for a relative change, said to be what it is: one-sample.

    Source:
        Its table where that has the effect, else its formula ``((z_alpha + z_beta) / effect)²``.
    """
    effect = relative_change(ratio)
    formula = ((normal_quantile(1 - ALPHA / 2) + normal_quantile(POWER_RATIO)) / ratio) ** 2
    entities = REFERENCE_ONE_SAMPLE.get(ratio, ceil(formula))
    power = power_of(effect, entities, entities)
    needed = entities_per_arm(effect)
    return ReferenceSampleSize(
        entities,
        power,
        needed,
        f"{entities:,} is a one-sample figure: with two arms of that size the power to see {ratio:.3g} of the mean is "
        f"{100 * power:.1f} %; {100 * POWER_RATIO:.0f} % needs {needed:,} an arm.",
    )


def detectable_difference(standard_error: float, freedom: float, alpha: float = ALPHA) -> float:
    """Return the difference that a test with this standard error sees with the usual power, 80 %."""
    return float(standard_error * (special.stdtrit(freedom, 1 - alpha / 2) + special.stdtrit(freedom, POWER_RATIO)))


def when_known(
    effect: Effect,
    change: str,
    entities: tuple[float, float],
    entities_per_day: tuple[float, float],
    inflation_ratio: float = 1.0,
) -> Forecast:
    """Return in how many days a test sees an effect with a power of 80 % at today's traffic.

    Args:
        effect: What is to be seen.
        change: The effect in words, "a 0.5-point change".
        entities: What arm A and arm B have now, closed outcome windows only.
        entities_per_day: New ones a day in A and B. Entities that come back are none, so that yesterday's visitors are
            not counted for tomorrow.
        inflation_ratio: :func:`sample_inflation_ratio` of the test's looks.
    """

    def is_known(days: int) -> bool:
        sizes = [(now + days * daily) / inflation_ratio for now, daily in zip(entities, entities_per_day, strict=True)]
        return power_of(effect, *sizes) >= POWER_RATIO

    power = f"({100 * POWER_RATIO:.0f} % power)"
    if is_known(0):
        return Forecast(0, f"There are enough entities to see {change} {power}.")
    if not any(entities_per_day):
        return Forecast(None, f"No traffic, so no forecast of when there will be enough entities to see {change}.")
    if not is_known(MAX_FORECAST_DAYS):
        years = MAX_FORECAST_DAYS // 365
        return Forecast(None, f"Today's traffic is too little to see {change} within {years} years {power}.")
    days = bisect_left(range(MAX_FORECAST_DAYS + 1), x=True, key=is_known)
    return Forecast(days, f"At today's traffic B needs {days:,} more day{'s' * (days > 1)} to see {change} {power}.")


def normal_quantile(ratio: float) -> float:
    """Return the value below which a standard normal variable lies with this chance."""
    return float(special.ndtri(ratio))


def spent_alpha(fraction: float, alpha: float = ALPHA) -> float:
    """Return the share of ``alpha`` that may be used up when this fraction (0-1] of the information is in.

    Both directions together; each spends half of it.

    Source:
        O'Brien-Fleming type: Lan & DeMets, "Discrete sequential boundaries for clinical trials", Biometrika 70 (1983).
    """
    return float(4 * special.ndtr(-normal_quantile(1 - alpha / 4) / sqrt(fraction)))


def look_fractions(looks: int) -> tuple[float, ...]:
    """Return when so many looks are due, as fractions of a test's sample at equal steps; the last one is 1."""
    return tuple(number / looks for number in range(1, looks + 1))


def look_boundaries(fractions: Sequence[float], alpha: float = ALPHA) -> tuple[float, ...]:
    """Return how many standard errors a difference must be away from zero at each look, so that all share one alpha.

    Args:
        fractions: The information at each look as a fraction of the planned, increasing, 0-1. It may differ from what
            was declared; what was spent stays spent.
        alpha: Of all looks and both directions.

    Raises:
        ValueError: If the fractions do not increase, or leave 0-1.

    Source:
        Recursive integration: Armitage, McPherson & Rowe, J. R. Statist. Soc. A 132 (1969). Five equal looks give
        4.8769, 3.3569, 2.6803, 2.2898, 2.0310 as in Reboussin, DeMets, Kim & Lan, Controlled Clinical Trials 21 (2000).
    """
    walk = _Walk.start(fractions)
    boundaries = []
    spent = 0.0
    for before, fraction in zip((0.0, *fractions), fractions, strict=False):
        due = (spent_alpha(fraction, alpha) - spent) / 2
        spent += 2 * due
        boundary = _root_of(_excess, 0.0, 40.0, walk, fraction - before, sqrt(fraction), due)
        boundaries.append(float(boundary))
        walk = walk.on(fraction - before, boundary * sqrt(fraction))
    return tuple(boundaries)


def sample_inflation_ratio(looks: Sequence[float], alpha: float = ALPHA, power_ratio: float = POWER_RATIO) -> float:
    """Return by how much more entities a test with these looks needs at its last one than one with a single look.

    Source:
        Jennison & Turnbull, *Group Sequential Methods* (2000), §2.3: the drift that gives the power, squared, over that
        of a fixed sample.
    """
    boundaries = look_boundaries(looks, alpha)
    fixed = normal_quantile(1 - alpha / 2) + normal_quantile(power_ratio)

    def missing_power(drift: float) -> float:
        walk = _Walk.start(looks)
        for before, fraction, boundary in zip((0.0, *looks), looks, boundaries, strict=False):
            walk = walk.on(fraction - before, boundary * sqrt(fraction), drift)
        return power_ratio - (1 - float(walk.masses.sum()))

    return float((_root_of(missing_power, 0.9 * fixed, 3 * fixed) / fixed) ** 2)


def always_valid_boundary(fraction: float, alpha: float = ALPHA) -> float:
    """Return how many standard errors an interval must reach to hold at every moment at once; for display.

    It is narrowest when all planned information is in, and there 1.55 times as wide as a fixed one.

    Args:
        fraction: The information in, as a fraction (above 0) of the planned.
        alpha: Chance that the interval is ever wrong.

    Source:
        Asymptotic confidence sequence: Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas, arXiv 2103.06476;
        Gaussian mixture, its one parameter chosen as they say.
    """
    mixture = interval_mixture(fraction, alpha)
    return sqrt((mixture + 1) / mixture * (log1p(mixture) - 2 * log(alpha)))


def interval_mixture(fraction: float, alpha: float) -> float:
    """Return an always-valid interval's mixture, the information in over its own: narrowest at the planned sample."""
    return fraction * (log1p(-2 * log(alpha)) - 2 * log(alpha))


class _Walk(NamedTuple):
    """Where a Brownian motion is that has crossed no boundary yet: points, and the chance at each."""

    points: FloatArray
    masses: FloatArray
    nodes: FloatArray
    weights: FloatArray

    @classmethod
    def start(cls, fractions: Sequence[float]) -> "_Walk":
        steps = np.diff((0.0, *fractions))
        if not len(fractions) or steps.min() <= 0 or fractions[-1] > 1:
            raise ValueError(f"looks are at increasing fractions above 0 and up to 1, not at {list(fractions)}")
        # The widest region is about ±2.5 at any time; the shortest step is what a node's neighbour must not skip.
        wanted = ceil(_NODES_PER_STEP * 5 / sqrt(steps.min()))
        nodes, weights = np.polynomial.legendre.leggauss(min(max(wanted, _MIN_NODES), _MAX_NODES))
        return cls(np.zeros(1), np.ones(1), nodes, weights)

    def chance_above(self, step: float, edge: float) -> float:
        return float(self.masses @ special.ndtr((self.points - edge) / sqrt(step)))

    def on(self, step: float, edge: float, drift: float = 0.0) -> "_Walk":
        """Walk on for a while, and drop what is beyond ±edge at its end."""
        points = edge * self.nodes
        away = (points[:, None] - self.points - drift * step) / sqrt(step)
        density = np.exp(-(away**2) / 2) @ self.masses / sqrt(2 * np.pi * step)
        return self._replace(points=points, masses=edge * self.weights * density)


def _root_of(function: Callable[..., float], low: float, high: float, *arguments: Any) -> float:
    """Return where a function of its first argument is zero between two values that it has another sign at."""
    from scipy.optimize import brentq  # noqa: PLC0415 - 0.2 s of every start of a proxy, for what plans of tests need

    return float(brentq(function, low, high, arguments))


def _excess(boundary: float, walk: _Walk, step: float, scale: float, due: float) -> float:
    return walk.chance_above(step, boundary * scale) - due
