"""What keeps a plan's judge from being listened to."""

from understudy.core.canary.judge_limits import read_judge
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.rollout.plan import RolloutPlan, Strategy
from understudy.errors import Violation

_PLACE = "/canary_limits/judge"


def judge_problems(plan: RolloutPlan) -> tuple[Violation, ...]:
    """Return what is wrong with a plan's judge, with JSON pointers; nothing where it names none."""
    if plan.canary_limits.get("judge") is None:
        return ()
    if plan.canary_policy == SEED:
        return (Violation(_PLACE, "expected none with canary_policy seed, whose rule listens to none"),)
    if plan.strategy is Strategy.BLUE_GREEN:
        return (Violation(_PLACE, "expected none with strategy blue_green, which moves all before one is asked"),)
    _, violations = read_judge(plan.canary_limits["judge"])
    return tuple(Violation(f"{_PLACE}{pointer}", detail) for pointer, detail in violations)
