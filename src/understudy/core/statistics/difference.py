"""The difference of one metric between two arms, entity by entity, with its uncertainty."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from understudy.core.statistics.sample_size import MIN_ENTITIES, FloatArray, welch_degrees_of_freedom

ROUNDING = 1e-10
"""Spread over size of values below which all are equal but for the last digits of their floats."""


class ArmEntities(NamedTuple):
    """One arm, entity by entity; all arrays have the shape ``(entities,)``."""

    numerator: FloatArray
    """The entity's outcome: a sum of values, or 1 and 0 for happened and not."""
    denominator: FloatArray
    """What the outcome is per: the entity's exposures or requests, or 1 for a metric per entity."""
    covariate: FloatArray | None = None
    """The entity's value from before its first exposure; NaN for one that was not there."""
    covariate_denominator: FloatArray | None = None
    """Its denominator from before, where that is not 1; NaN as well."""


class Scale(NamedTuple):
    """What a difference is measured in, and how well that is known."""

    standard_error: float
    degrees_of_freedom: float


class Difference(NamedTuple):
    """B less A with its uncertainty; values are sums of numerators over sums of denominators."""

    entities_a: int
    entities_b: int
    effective_a: float
    """The entities of A as if all had the same denominator: a few that send most requests are few."""
    effective_b: float
    value_a: float
    value_b: float
    difference: float
    """Adjusted by the covariate when there is one, so it may differ from ``value_b - value_a``."""
    variance_a: float
    """Of one entity's (adjusted) contribution: what an ``Effect`` wants for planning."""
    variance_b: float
    theta: float | None = None
    """How much of the (first) covariate's difference is taken off; ``None`` without one."""
    variance_kept_ratio: float = 1.0
    """Variance after the adjustment over before: the share of entities that are needed with it."""
    with_outcome_ratio: float | None = None
    """The share of the entities of both that have an outcome; ``None`` where they were not counted."""

    @property
    def standard_error(self) -> float:
        """Standard error of the difference: the larger of the two of :attr:`scales`."""
        return sqrt(max(self._own_error, self._pooled_error))

    @property
    def scales(self) -> tuple[Scale, Scale]:
        """Welch's scale of the difference and Student's; the standard error must be above 0.

        Welch's takes each arm's variance from that arm: right when they differ. But a small arm that has not met its
        rare large values yet looks far surer than it is; Student's takes one variance from both. A difference counts
        when it does on either. Of equal arms of 900 and 100 entities, 1 % of which convert, 36 % had a winner on
        Welch's alone and 0.1 % have one on both; where B varies three times as much, 36 % on Student's and 5.1 %.
        """
        own = welch_degrees_of_freedom(
            self.variance_a / self.entities_a,
            self.effective_a - 1,
            self.variance_b / self.entities_b,
            self.effective_b - 1,
        )
        pooled = self.effective_a + self.effective_b - 2
        return Scale(sqrt(self._own_error), own), Scale(sqrt(self._pooled_error), pooled)

    @property
    def _own_error(self) -> float:
        return self.variance_a / self.entities_a + self.variance_b / self.entities_b

    @property
    def _pooled_error(self) -> float:
        freedom_a, freedom_b = self.entities_a - 1, self.entities_b - 1
        variance = (freedom_a * self.variance_a + freedom_b * self.variance_b) / (freedom_a + freedom_b)
        return variance * (1 / self.entities_a + 1 / self.entities_b)

    @property
    def entities_of_equal_arms(self) -> float:
        """The entities an arm of two equal arms that tell as much as these."""
        return 2 * self.entities_a * self.entities_b / (self.entities_a + self.entities_b)


def compare(a: ArmEntities, b: ArmEntities) -> Difference | None:
    """Return B less A; ``None`` while an arm has fewer than two (effective) entities.

    Source:
        Ratio of sums by entity with the delta method: Deng, Knoblich & Lu, "Applying the delta method in metric
        analytics", KDD 2018. Its variance is too small where few entities have most of the denominator, so each
        deviation is taken with the entity left out (jackknife; Cochran, *Sampling Techniques* (1977), §6.17), and the
        degrees of freedom are of effective entities (Kish, *Survey Sampling* (1965), §11.2). Of equal arms with 100
        entities whose requests follow a power law 14 % had a winner without both, 4 % have one with both.
        Covariate: CUPED, Deng, Xu, Kohavi & Walker, WSDM 2013, with one θ for both arms, taken within them. A metric
        per call has one for its denominator as well: what an entity adds to a ratio is its outcome less the ratio times
        its calls, so the past of both explains it (Deng, Knoblich & Lu (2018), §3 and §5; regression on both: Jin & Ba,
        "Toward optimal variance reduction in online controlled experiments", Technometrics 65 (2023)).
    """
    effective_a, effective_b = effective_entities(a.denominator), effective_entities(b.denominator)
    if min(effective_a, effective_b) < MIN_ENTITIES:
        return None
    (value_a, own_a), (value_b, own_b) = linearised(a), linearised(b)
    plain = Difference(
        entities_a=len(own_a),
        entities_b=len(own_b),
        effective_a=effective_a,
        effective_b=effective_b,
        value_a=value_a,
        value_b=value_b,
        difference=value_b - value_a,
        variance_a=float(own_a.var(ddof=1)),
        variance_b=float(own_b.var(ddof=1)),
    )
    pairs = (a.covariate, b.covariate), (a.covariate_denominator, b.covariate_denominator)
    pasts = [_filled(past_a, past_b) for past_a, past_b in pairs if past_a is not None and past_b is not None]
    return _adjusted(plain, own_a, own_b, pasts)


def effective_entities(denominator: FloatArray) -> float:
    """Return an arm's effective number of entities, as if all had the same denominator (Kish); 0 without any."""
    squares = float(denominator @ denominator)
    return float(denominator.sum()) ** 2 / squares if squares else 0.0


def linearised(arm: ArmEntities) -> tuple[float, FloatArray]:
    """Return the arm's value, and by how much each entity moves it, times their number."""
    total, others = arm.denominator.sum(), len(arm.denominator) - 1
    value = float(arm.numerator.sum() / total)
    return value, (arm.numerator - value * arm.denominator) * others / (total - arm.denominator)


class _Pasts(NamedTuple):
    """A covariate of both arms."""

    a: FloatArray
    b: FloatArray


def _filled(a: FloatArray, b: FloatArray) -> _Pasts:
    """Give entities without a past the mean of all others: that is known before exposure as well, so it is no bias."""
    known = np.concatenate([a[~np.isnan(a)], b[~np.isnan(b)]])
    mean = known.mean() if len(known) else 0.0
    return _Pasts(np.where(np.isnan(a), mean, a), np.where(np.isnan(b), mean, b))


def _adjusted(plain: Difference, own_a: FloatArray, own_b: FloatArray, pasts: Sequence[_Pasts]) -> Difference:
    """Take off what the covariates explain, one after the other, each without what those before it explain.

    What is left after all is that of one regression on all of them (Frisch & Waugh, Econometrica 1 (1933)).
    """
    difference, theta = plain.difference, None
    taken: list[_Pasts] = []
    for past_a, past_b in pasts:
        own = _without(_Pasts(past_a, past_b), taken)
        centred_a, centred_b = own.a - own.a.mean(), own.b - own.b.mean()
        spread = float(centred_a @ centred_a + centred_b @ centred_b)
        if spread <= ROUNDING**2 * float(past_a @ past_a + past_b @ past_b):
            continue
        slope = float((own_a @ centred_a + own_b @ centred_b) / spread)
        difference -= slope * float(own.b.mean() - own.a.mean())
        own_a, own_b = own_a - slope * centred_a, own_b - slope * centred_b
        theta = slope if theta is None else theta
        taken.append(own)
    if theta is None:
        return plain
    adjusted = plain._replace(
        difference=difference,
        variance_a=float(own_a.var(ddof=1)),
        variance_b=float(own_b.var(ddof=1)),
        theta=theta,
    )
    before = plain.standard_error
    return adjusted._replace(variance_kept_ratio=(adjusted.standard_error / before) ** 2 if before else 1.0)


def _without(pasts: _Pasts, taken: Sequence[_Pasts]) -> _Pasts:
    """Return a covariate less what earlier ones, which explain nothing of each other, explain of it within the arms."""
    a, b = pasts
    for before in taken:
        centred_a, centred_b = before.a - before.a.mean(), before.b - before.b.mean()
        slope = float((a @ centred_a + b @ centred_b) / (centred_a @ centred_a + centred_b @ centred_b))
        a, b = a - slope * before.a, b - slope * before.b
    return _Pasts(a, b)
