"""Is B better than A? One outcome metric of two arms, entity by entity.

The unit is the entity: its requests are alike, and counting them as independent finds winners where there are none.
What the caller ensures before anything is compared:

- An entity belongs to the arm that it was *assigned* to when it was first exposed, whichever version served it later
  (intention to treat). Forced calls count nowhere.
- Both arms have the same entry window, so that a ramp does not compare old entities with new ones.
- Only entities whose outcome window has closed are in the arrays, each with its outcomes of exactly that window (label
  delay). Else late entrants look worse than they are, and a later look would change what an earlier one has counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import floor, log10
from typing import NamedTuple

import numpy as np

from understudy.core import special_functions as special
from understudy.core.statistics.difference import ROUNDING, Difference, Scale
from understudy.core.statistics.sample_ratio import SAMPLE_RATIO_ALPHA, SampleRatio
from understudy.core.statistics.sample_size import (
    ALPHA,
    MIN_ENTITIES,
    POWER_RATIO,
    always_valid_boundary,
    detectable_difference,
    look_boundaries,
)

_MINUS = "\N{MINUS SIGN}"
_FARTHEST = 37.0
"""Standard errors beyond which the normal tail is zero as a float."""


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
    """What was fixed before the first entity: the sample, and the interim analyses (looks) that may decide.

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
    """Whether this was a declared interim analysis. The caller stores ``fraction`` then, for the next call."""


def judge(
    difference: Difference | None,
    plan: AbPlan,
    metric: Metric,
    ratio: SampleRatio,
    looks_taken: Sequence[float] = (),
) -> AbVerdict:
    """Return what the test says now.

    Args:
        difference: B less A.
        plan: What was declared.
        metric: How the difference is told.
        ratio: Of all epochs; a mismatch is the whole verdict.
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
    if difference.standard_error <= ROUNDING * max(abs(difference.value_a), abs(difference.value_b)):
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
    words = f"{100 * (1 - plan.alpha):.4g} % interval {_interval_words(interval, metric)}"
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
