"""What keeps a plan's metrics of an operator's own from being judged."""

from understudy.core.canary.metric_limits import read_metrics
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.plan import RolloutPlan, Strategy
from understudy.errors import Violation

_PLACE = "/canary_limits/metrics"


def metric_problems(plan: RolloutPlan) -> tuple[Violation, ...]:
    """Return what is wrong with the list of a plan's metrics, with JSON pointers; nothing where there is no list."""
    if "metrics" not in plan.canary_limits:
        return ()
    if plan.canary_policy == SEED:
        return (Violation(_PLACE, "expected none with canary_policy seed, whose rule judges no metrics"),)
    if plan.strategy is Strategy.BLUE_GREEN:
        return (Violation(_PLACE, "expected none with strategy blue_green, which moves everything before any is read"),)
    _, violations = read_metrics(plan.canary_limits["metrics"])
    return tuple(Violation(f"{_PLACE}{pointer}", detail) for pointer, detail in violations)
