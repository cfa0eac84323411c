"""Is B better than A? One outcome metric of two arms, entity by entity.

The unit is the entity: its requests are alike, and counting them as independent finds winners where there are none.
What the caller sees to before anything is compared:

- An entity belongs to the arm that it was *assigned* to when it was first exposed, whoever served it later (intention
  to treat). Forced calls count nowhere.
- Both arms have the same entry window, so that a ramp does not compare old entities with new ones.
- Only entities whose outcome window has closed are in the arrays, each with its outcomes of exactly that window (label
  delay). Else late entrants look worse than they are, and a later look would change what an earlier one has counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import exp, floor, inf, log10, sqrt
from typing import NamedTuple

import numpy as np
from scipy import special

from understudy.core.statistics.sample_size import (
    ALPHA,
    MIN_ENTITIES,
    POWER_RATIO,
    FloatArray,
    always_valid_boundary,
    detectable_difference,
    look_boundaries,
    welch_degrees_of_freedom,
)

SAMPLE_RATIO_ALPHA = 0.001
"""Below this p-value the split was not the one that was set, and nothing is compared. Source: statistics §3."""
_LOG_ODDS = np.geomspace(0.002, 1.4, 15)
_SAMPLE_RATIO_ODDS: FloatArray = np.exp(np.concatenate([-_LOG_ODDS, _LOG_ODDS]))
"""B's losses or gains of entities that the test of the sample ratio looks for: 0.2 % to three quarters, both ways. A
loss between two of them is found about as soon as one of them, and twice as many find nothing sooner (measured)."""
_MINUS = "\N{MINUS SIGN}"
_ROUNDING = 1e-10
"""Spread over size of values below which all are equal but for the last digits of their floats."""
_FARTHEST = 37.0
"""Standard errors beyond which the normal tail is zero as a float."""


class ArmEntities(NamedTuple):
    """One arm, entity by entity; all arrays have the shape ``(entities,)``."""

    numerator: FloatArray
    """The entity's outcome: a sum of values, or 1 and 0 for happened and not."""
    denominator: FloatArray
    """What the outcome is per: the entity's exposures or requests, or 1 for a metric per entity."""
    covariate: FloatArray | None = None
    """The entity's value from before its first exposure; NaN for one that was not there."""


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
    """How much of a covariate's difference is taken off; ``None`` without one."""
    variance_kept_ratio: float = 1.0
    """Variance after the adjustment over before: the share of entities that are needed with it."""
    with_outcome_ratio: float | None = None
    """The share of the entities of both that have an outcome; ``None`` where nobody counted them."""

    @property
    def standard_error(self) -> float:
        """Standard error of the difference: the larger of the two of :attr:`scales`."""
        return sqrt(max(self._own_error, self._pooled_error))

    @property
    def scales(self) -> tuple["Scale", "Scale"]:
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


class Epoch(NamedTuple):
    """A time with one allocation: the new entities of each arm, and the share (0-1) of B among both as it was set."""

    entities_a: int
    entities_b: int
    share_b: float


class SampleRatio(NamedTuple):
    """Whether the arms have the entities that the split should have given them."""

    p_value: float
    """Holds however often one looks."""
    chi2_p_values: tuple[float, ...]
    """Of each epoch alone, for one look."""
    combined_chi2_p_value: float
    expected_b: float
    entities_b: int

    @property
    def is_mismatch(self) -> bool:
        """Whether the difference between the arms may be one of who was counted."""
        return self.p_value < SAMPLE_RATIO_ALPHA


class AbState(StrEnum):
    """What a test can say."""

    INVALID = "invalid"
    TOO_EARLY = "too_early"
    UNDECIDED = "undecided"
    A_BETTER = "a_better"
    B_BETTER = "b_better"
    NO_DIFFERENCE = "no_difference"
    CLOSED = "closed"


class Metric(NamedTuple):
    """How a metric is read: a share is told in percentage points."""

    is_share: bool = True
    higher_is_better: bool = True


@dataclass(frozen=True, slots=True)
class AbPlan:
    """What was fixed before the first entity: the sample, and when it may be looked at to decide.

    Raises:
        ValueError: If the looks do not increase to 1, or a number is out of its range.
    """

    entities_per_arm: int
    """At the last look, when the arms are equal; unequal arms count as the equal ones that tell as much."""
    looks: tuple[float, ...] = (1.0,)
    """As fractions of that sample: one at the end, or for instance :data:`FIVE_LOOKS`."""
    alpha: float = ALPHA
    minimum_entities: int = 100
    """Effective entities of each arm, below which there is no verdict: intervals rest on the normal approximation."""

    def __post_init__(self) -> None:
        """Refuse a plan that cannot be followed."""
        if self.looks[-1:] != (1.0,) or any(np.diff((0.0, *self.looks)) <= 0):
            raise ValueError(f"looks: expected increasing fractions above 0 that end with 1, got {list(self.looks)}")
        if not 0 < self.alpha < 1:
            raise ValueError(f"alpha: expected a number between 0 and 1, got {self.alpha:g}")
        if min(self.entities_per_arm, self.minimum_entities) < MIN_ENTITIES:
            raise ValueError(f"entities_per_arm, minimum_entities: expected at least {MIN_ENTITIES}")


class Interval(NamedTuple):
    """Where the difference may lie."""

    low: float
    high: float
    always_valid: bool
    """Made for being looked at at any time; ``False`` for the interval of a declared look."""

    @property
    def contains_zero(self) -> bool:
        """Whether the arms may be equal."""
        return self.low <= 0 <= self.high


class AbVerdict(NamedTuple):
    """What the test says now. A winner is only in ``state``, and only with an interval on its side of zero."""

    state: AbState
    sentence: str
    interval: Interval | None = None
    p_value: float | None = None
    """Two-sided; only at the end of a test with one look, since before that it would be read as if it held."""
    fraction: float = 0.0
    """The information in, of the planned, up to 1."""
    is_look: bool = False
    """Whether this used up a declared look. The caller stores ``fraction`` then, and hands it in with the next call."""


def compare(a: ArmEntities, b: ArmEntities) -> Difference | None:
    """Return B less A; ``None`` while an arm has fewer than two (effective) entities.

    Source:
        Ratio of sums by entity with the delta method: Deng, Knoblich & Lu, "Applying the delta method in metric
        analytics", KDD 2018. Its variance is too small where few entities have most of the denominator, so each
        deviation is taken with the entity left out (jackknife; Cochran, *Sampling Techniques* (1977), §6.17), and the
        degrees of freedom are of effective entities (Kish, *Survey Sampling* (1965), §11.2). Of equal arms with 100
        entities whose requests follow a power law 14 % had a winner without both, 4 % have one with both.
        Covariate: CUPED, Deng, Xu, Kohavi & Walker, WSDM 2013, with one θ for both arms, taken within them.
    """
    effective_a, effective_b = _effective_entities(a.denominator), _effective_entities(b.denominator)
    if min(effective_a, effective_b) < MIN_ENTITIES:
        return None
    (value_a, own_a), (value_b, own_b) = _linearised(a), _linearised(b)
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
    if a.covariate is None or b.covariate is None:
        return plain
    return _adjusted(plain, own_a, own_b, *_filled(a.covariate, b.covariate))


def _effective_entities(denominator: FloatArray) -> float:
    squares = float(denominator @ denominator)
    return float(denominator.sum()) ** 2 / squares if squares else 0.0


def _linearised(arm: ArmEntities) -> tuple[float, FloatArray]:
    """Return the arm's value, and by how much each entity moves it, times their number."""
    total, others = arm.denominator.sum(), len(arm.denominator) - 1
    value = float(arm.numerator.sum() / total)
    return value, (arm.numerator - value * arm.denominator) * others / (total - arm.denominator)


def _filled(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Give entities without a past the mean of all others: that is known before exposure as well, so it is no bias."""
    known = np.concatenate([a[~np.isnan(a)], b[~np.isnan(b)]])
    mean = known.mean() if len(known) else 0.0
    return np.where(np.isnan(a), mean, a), np.where(np.isnan(b), mean, b)


def _adjusted(
    plain: Difference, own_a: FloatArray, own_b: FloatArray, past_a: FloatArray, past_b: FloatArray
) -> Difference:
    centred_a, centred_b = past_a - past_a.mean(), past_b - past_b.mean()
    spread = float(centred_a @ centred_a + centred_b @ centred_b)
    if spread <= _ROUNDING**2 * float(past_a @ past_a + past_b @ past_b):
        return plain
    theta = float((own_a @ centred_a + own_b @ centred_b) / spread)
    adjusted = plain._replace(
        difference=plain.difference - theta * float(past_b.mean() - past_a.mean()),
        variance_a=float((own_a - theta * centred_a).var(ddof=1)),
        variance_b=float((own_b - theta * centred_b).var(ddof=1)),
        theta=theta,
    )
    before = plain.standard_error
    return adjusted._replace(variance_kept_ratio=(adjusted.standard_error / before) ** 2 if before else 1.0)


def sample_ratio(epochs: Sequence[Epoch]) -> SampleRatio:
    """Return whether the arms have as many entities as each epoch's allocation should have given them.

    The epochs' evidence is multiplied for each loss or gain of B's entities that may run through all of them, and
    averaged over those; an average of likelihood ratios exceeds 1,000 once in a thousand tests at most, however often
    one looks.

    Raises:
        ValueError: If an epoch's share is outside 0-1.

    Source:
        Lindon & Malek, "Anytime-valid inference for multinomial count data", NeurIPS 2022, arXiv 2011.03567; here with
        a grid of odds ratios in place of their Dirichlet mixture, so that a ramp's epochs add up. Ville's inequality.
    """
    log_evidence = np.zeros_like(_SAMPLE_RATIO_ODDS)
    p_values, statistics = [], []
    for a, b, share in epochs:
        if not 0 <= share <= 1:
            raise ValueError(f"share_b: expected 0 to 1, got {share:g}")
        log_evidence += _log_likelihood_ratios(a, b, share)
        statistics.append(_chi2(a, b, share))
        p_values.append(float(special.chdtrc(1, statistics[-1])))
    log_mean = special.logsumexp(log_evidence) - np.log(len(log_evidence))
    expected = sum((a + b) * share for a, b, share in epochs)
    return SampleRatio(
        p_value=exp(min(0.0, -log_mean)),
        chi2_p_values=tuple(p_values),
        combined_chi2_p_value=float(special.chdtrc(max(len(statistics), 1), sum(statistics))),
        expected_b=expected,
        entities_b=sum(epoch.entities_b for epoch in epochs),
    )


def _is_impossible(a: int, b: int, share: float) -> bool:
    return (share == 0 and b > 0) or (share == 1 and a > 0)


def _log_likelihood_ratios(a: int, b: int, share: float) -> FloatArray:
    if _is_impossible(a, b, share):
        return np.full_like(_SAMPLE_RATIO_ODDS, inf)
    # With B's odds multiplied by r its share is share·r / (1 - share + share·r).
    ratios: FloatArray = b * np.log(_SAMPLE_RATIO_ODDS) - (a + b) * np.log1p(share * (_SAMPLE_RATIO_ODDS - 1))
    return ratios


def _chi2(a: int, b: int, share: float) -> float:
    if _is_impossible(a, b, share):
        return inf
    variance = (a + b) * share * (1 - share)
    return (b - (a + b) * share) ** 2 / variance if variance else 0.0


def judge(
    difference: Difference | None,
    plan: AbPlan,
    metric: Metric,
    ratio: SampleRatio,
    looks_taken: Sequence[float] = (),
) -> AbVerdict:
    """Return what the test says now.

    Args:
        difference: From :func:`compare`.
        plan: What was declared.
        metric: How the difference is told.
        ratio: From :func:`sample_ratio` over all epochs; a mismatch is the whole verdict.
        looks_taken: ``fraction`` of each earlier verdict with ``is_look``, in their order. A look that is not handed in
            again would be free, and the test would find winners where there are none.

    Source:
        Statistics §3. The interval of a look is the repeated confidence interval of Jennison & Turnbull, *Group
        Sequential Methods* (2000), §9; small arms widen it as Student's t does.
    """
    if ratio.is_mismatch:
        return AbVerdict(AbState.INVALID, _mismatch_sentence(ratio))
    missing = _missing_sentence(difference, plan)
    if difference is None or missing:
        return AbVerdict(AbState.TOO_EARLY, missing)
    fraction = min(1.0, difference.entities_of_equal_arms / plan.entities_per_arm)
    last = looks_taken[-1] if looks_taken else 0.0
    if last >= 1:
        sentence = "The test is over: its last look was taken, and what it said then stands."
        return AbVerdict(AbState.CLOSED, sentence, fraction=fraction)
    if fraction < next(look for look in plan.looks if look > last):
        interval = _interval(difference, always_valid_boundary(fraction, plan.alpha), always_valid=True)
        sentence = _sentence(AbState.UNDECIDED, difference, metric, plan, interval)
        return AbVerdict(AbState.UNDECIDED, sentence, interval, fraction=fraction)
    boundary = look_boundaries((*looks_taken, fraction), plan.alpha)[-1]
    interval = _interval(difference, boundary, always_valid=False)
    state = _state_at_look(interval, metric, is_last=fraction >= 1)
    sentence = _sentence(state, difference, metric, plan, interval)
    p_value = _p_value(difference) if plan.looks == (1.0,) else None
    return AbVerdict(state, sentence, interval, p_value, fraction, is_look=True)


def _interval(difference: Difference, boundary: float, *, always_valid: bool) -> Interval:
    if always_valid:
        reach = boundary * difference.standard_error
    else:
        reach = max(_of_student(boundary, scale) * scale.standard_error for scale in difference.scales)
    return Interval(difference.difference - reach, difference.difference + reach, always_valid)


def _of_student(boundary: float, scale: Scale) -> float:
    """Return the boundary that Student's t exceeds as rarely as a normal variable exceeds this one."""
    tail = special.ndtr(-min(boundary, _FARTHEST))
    return -float(special.stdtrit(scale.degrees_of_freedom, tail))


def _state_at_look(interval: Interval, metric: Metric, *, is_last: bool) -> AbState:
    if interval.contains_zero:
        return AbState.NO_DIFFERENCE if is_last else AbState.UNDECIDED
    return AbState.B_BETTER if (interval.low > 0) == metric.higher_is_better else AbState.A_BETTER


def _p_value(difference: Difference) -> float:
    size = abs(difference.difference)
    return max(float(2 * special.stdtr(freedom, -size / error)) for error, freedom in difference.scales)


def _missing_sentence(difference: Difference | None, plan: AbPlan) -> str:
    """Say what a verdict lacks; nothing when it lacks nothing."""
    if difference is None:
        return "Too early: an arm has no entities with a closed outcome window yet."
    effective = floor(difference.effective_a), floor(difference.effective_b)
    if min(effective) < plan.minimum_entities:
        unequal = min(effective) < min(difference.entities_a, difference.entities_b)
        return (
            f"Too early: A has {difference.entities_a:,} entities and B {difference.entities_b:,}"
            f"{f', which weigh as {effective[0]:,} and {effective[1]:,} equal ones' if unequal else ''}; "
            f"a verdict rests on at least {plan.minimum_entities:,} of each."
        )
    if difference.standard_error <= _ROUNDING * max(abs(difference.value_a), abs(difference.value_b)):
        return "Too early: within each arm all entities have the same value, so nothing is known about chance."
    return ""


def _mismatch_sentence(ratio: SampleRatio) -> str:
    return (
        f"No verdict: B has {ratio.entities_b:,} entities where the split gives {ratio.expected_b:,.0f} (sample ratio "
        f"p {ratio.p_value:.1g}, limit {SAMPLE_RATIO_ALPHA:g}). Find out who is not counted before comparing anything."
    )


def _sentence(state: AbState, difference: Difference, metric: Metric, plan: AbPlan, interval: Interval) -> str:
    """Say the state and its evidence; who is ahead is not who is better."""
    leader = "B" if (difference.difference > 0) == metric.higher_is_better else "A"
    amount = _amount(abs(difference.difference), metric, interval)
    words = f"{100 * (1 - plan.alpha):g} % interval {_interval_words(interval, metric)}"
    if state in (AbState.A_BETTER, AbState.B_BETTER):
        return f"{leader} is better by {amount}; {words}."
    lead = f"{leader} is ahead by {amount}; {words}" if difference.difference else f"A and B are level; {words}"
    if state is AbState.NO_DIFFERENCE:
        seen = max(detectable_difference(*scale, plan.alpha) for scale in difference.scales)
        power = f"{100 * POWER_RATIO:.0f} % power"
        return f"No difference shown. {lead}. This sample sees {_amount(seen, metric, interval)} with {power}."
    if interval.contains_zero:
        return f"Not yet decided. {lead}."
    return f"Not yet decided. {lead}, but only a declared look decides."


def _interval_words(interval: Interval, metric: Metric) -> str:
    low, high = (_signed(bound, metric, interval) for bound in interval[:2])
    if interval.contains_zero:
        return f"{low} \N{HORIZONTAL ELLIPSIS} {high} contains zero"
    return f"{low} \N{HORIZONTAL ELLIPSIS} {high} lies {'above' if interval.low > 0 else 'below'} zero"


def _signed(value: float, metric: Metric, interval: Interval) -> str:
    text = f"{value * _scale(metric):+.{_decimals(metric, interval)}f}"
    return text.replace("-", _MINUS)


def _amount(value: float, metric: Metric, interval: Interval) -> str:
    return f"{value * _scale(metric):.{_decimals(metric, interval)}f}{' points' if metric.is_share else ''}"


def _decimals(metric: Metric, interval: Interval) -> int:
    """As many as show two digits of what lies on either side of the difference."""
    return max(0, 1 - floor(log10((interval.high - interval.low) / 2 * _scale(metric))))


def _scale(metric: Metric) -> float:
    return 100.0 if metric.is_share else 1.0
