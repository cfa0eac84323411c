"""Outcomes that hold a step: it ends when each of them is shown to be no worse than its margin (non-inferiority)."""

from collections.abc import Sequence
from math import ceil, hypot, log, sqrt
from typing import NamedTuple

from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA, CheckInput, Outcomes
from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.messages import comparison_of
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.outcomes.outcome_check import MIN_ENTITIES, OUTCOMES, is_countable, tolerated_of, windows_of
from understudy.core.durations import duration_words
from understudy.core.statistics.difference import Difference
from understudy.core.statistics.sequential_evidence import mixture_radius

SHOWN_Z = 1.645
"""Standard errors of the estimate for which room is left: 95 % of equal versions are shown to be within by then."""
_MAX_TIMES = 1e9
_HALVINGS = 60


class HeldOutcome(NamedTuple):
    """An outcome that holds a step as a row of a table."""

    row: Evidence
    limit: OutcomeLimit
    entities: tuple[int, int]
    """Of the champion and the challenger, whose time for outcomes is over."""
    asked: int | None
    """Challenger entities with which an equal version is shown to be within the margin; ``None`` if unknown."""


def held_outcomes(policy: CanaryPolicy, rows: Sequence[Evidence], outcomes: Outcomes) -> list[HeldOutcome]:
    """Return the outcomes that hold the step, those that let it go included, in the order of the plan."""
    found = []
    for row in rows:
        if row.check not in OUTCOMES:
            continue
        number = OUTCOMES.index(row.check)
        if number >= len(policy.outcomes) or not policy.outcomes[number].holds_step:
            continue
        limit = policy.outcomes[number]
        difference = outcomes[number] if number < len(outcomes) else None
        is_known = difference is not None and is_countable(difference)
        entities = (0, 0) if difference is None else (difference.entities_a, difference.entities_b)
        found.append(
            HeldOutcome(row, limit, entities, entities_to_show(difference, limit) if difference and is_known else None)
        )
    return found


def is_held_by_outcome(inputs: CheckInput, row: Evidence) -> bool:
    """Whether a row is of an outcome that holds the step, and does not let it go yet."""
    if row.check not in OUTCOMES or row.state is CheckState.OK:
        return False
    return inputs.policy.outcomes[OUTCOMES.index(row.check)].holds_step


def outcomes_missing(inputs: CheckInput, rows: Sequence[Evidence]) -> list[str]:
    """Return for each outcome that holds the step, in words, its figures and what is missing."""
    held = [row for row in rows if is_held_by_outcome(inputs, row)]
    numbers = [OUTCOMES.index(row.check) for row in held]
    return [
        _words(row, inputs.policy.outcomes[number], inputs.outcome(number))
        for number, row in zip(numbers, held, strict=True)
    ]


def bound_words(limit: float) -> str:
    """Return what is to be shown of the ratio of the means: ``at least 0.9x``."""
    return f"{'at most' if limit > 1 else 'at least'} {limit:.3g}x"


def equal_entities_to_show(value: float, variance: float, limit: OutcomeLimit) -> int | None:
    """Return how many entities each of two equal arms needs until the outcome is shown to be within its margin.

    Args:
        value: The outcome's mean.
        variance: Of one entity's contribution to it.
        limit: The margin.

    Returns:
        Of 95 % of equal versions; ``None`` where no number would do, or the mean is 0.
    """
    size = MIN_ENTITIES
    alike = Difference(size, size, float(size), float(size), value, value, 0.0, variance, variance)
    asked = entities_to_show(alike, limit)
    return None if asked is None else max(asked, MIN_ENTITIES)


def entities_to_show(difference: Difference, limit: OutcomeLimit) -> int | None:
    """Return with how many challenger entities an equal version is shown to be within the margin (95 % of them are).

    Both arms grow as they are: what one entity scatters by, and the share that each arm has, stay. ``None`` where no
    number would do, or the champion's mean is 0.
    """
    if difference.value_a == 0:
        return None
    margin = abs(log(tolerated_of(limit, difference)))
    # Of equal versions: what the challenger's own mean happens to be says nothing of how many it takes.
    relative = (difference.variance_a / difference.value_a**2, difference.variance_b / difference.value_a**2)
    spread = hypot(sqrt(relative[0] / difference.entities_a), sqrt(relative[1] / difference.entities_b))

    def is_shown(times: float) -> bool:
        return (mixture_radius(windows_of(difference) * times, INTERVAL_ALPHA) + SHOWN_Z) * spread <= margin * sqrt(
            times
        )

    low, high = 1e-6, _MAX_TIMES
    if not is_shown(high):
        return None
    for _ in range(_HALVINGS):
        middle = sqrt(low * high)
        low, high = (low, middle) if is_shown(middle) else (middle, high)
    return ceil(high * difference.entities_b)


def _words(row: Evidence, limit: OutcomeLimit, difference: Difference | None) -> str:
    """Say which outcome holds the step, its figures, and what is missing."""
    until = f"entities count {duration_words(limit.within_seconds)} after their first call"
    if difference is None:
        return f"none of the {row.title} is counted yet, which holds the step: {until}"
    if not is_countable(difference):
        counted = min(difference.effective_a, difference.effective_b)
        entities = f"{counted:,.0f} of {MIN_ENTITIES} entities of each version"
        return f"{entities} for the {row.title}, which holds the step: {until}"
    if row.change_low is None:
        return (
            "the champion's mean is not surely above or below 0 yet, and a share of 0 means nothing: "
            f"{comparison_of(row)} holds the step"
        )
    bound = bound_words(row.limit or 0.0)
    return f"not shown yet to be {bound}: {comparison_of(row)} holds the step; {_more(limit, difference)}"


def _more(limit: OutcomeLimit, difference: Difference) -> str:
    """Say how many more entities it would take."""
    asked = entities_to_show(difference, limit)
    if asked is None:
        return "no number of entities shows it"
    so_far = difference.entities_b
    if asked <= so_far:
        return f"an equal version is mostly shown to be with {asked:,} challenger entities, this one has {so_far:,}"
    return f"an equal version takes about {asked:,} challenger entities, {so_far:,} are counted"
