"""What keeps a plan's outcomes from being judged, or a step that they hold from ever ending."""

from collections.abc import Sequence

from understudy.core.canary.outcome_limits import OutcomeLimit, read_outcomes
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.plan import RolloutPlan, Strategy
from understudy.errors import Violation

_PLACE = "/canary_limits/outcomes"
_ALONE = ("outcome", "outcome_limit_ratio", "outcome_within_seconds", "outcome_lower_is_better")
"""Limits of a plan that names one outcome alone."""


def outcome_problems(plan: RolloutPlan) -> tuple[Violation, ...]:
    """Return what is wrong with the list of a plan's outcomes, with JSON pointers; nothing where there is no list."""
    if "outcomes" not in plan.canary_limits:
        return ()
    if plan.canary_policy == SEED:
        return (Violation(_PLACE, "expected none with canary_policy seed, whose rule judges no outcomes"),)
    limits, violations = read_outcomes(plan.canary_limits["outcomes"])
    found = [Violation(f"{_PLACE}{pointer}", detail) for pointer, detail in violations]
    found += [
        Violation(f"/canary_limits/{name}", "expected none beside outcomes: say it in the outcome's own object there")
        for name in _ALONE
        if name in plan.canary_limits
    ]
    return tuple(found) or tuple(_never_ending(plan, limits))


def _never_ending(plan: RolloutPlan, limits: Sequence[OutcomeLimit]) -> list[Violation]:
    """Return which outcomes hold steps that do not wait, or that would always wait for a person."""
    found = []
    for number, limit in enumerate(limits):
        place = f"{_PLACE}/{number}"
        if limit.holds_step and plan.strategy is not Strategy.CANARY:
            detail = f"expected false with strategy {plan.strategy}, whose steps wait for no analysis; canary's do"
            found.append(Violation(f"{place}/holds_step", detail))
        elif limit.holds_step and limit.within_seconds >= plan.maximum_seconds:
            detail = (
                f"expected less than the plan's maximum_seconds ({plan.maximum_seconds:,.12g}), after which a step "
                "waits for a person: no entity would have counted by then"
            )
            found.append(Violation(f"{place}/within_seconds", detail))
    return found
