"""How long a rollout takes at today's traffic, asked before it starts."""

from math import isfinite
from typing import NamedTuple

from understudy.core.durations import duration_words
from understudy.core.rollout.plan import WHOLE_PERCENT, RolloutPlan, Step, Strategy


class Traffic(NamedTuple):
    """What the model gets today."""

    requests_per_second: float
    entities: int | None = None
    """Different entities of a day; ``None`` where they are not counted."""


class Needs(NamedTuple):
    """What the analysis asks of the challenger in each step, beside the plan's own ``min_requests``."""

    requests: int = 0
    entities: int = 0


NO_NEEDS = Needs()


class StepForecast(NamedTuple):
    """One step: ``seconds`` is ``None`` when it would never end; in words, why it takes that long."""

    weight_percent: int
    seconds: float | None
    words: str


class RolloutForecast(NamedTuple):
    """All steps below 100 %; ``seconds`` until the challenger is champion, ``None`` for never as things are."""

    steps: tuple[StepForecast, ...]
    seconds: float | None
    sentence: str


def forecast(plan: RolloutPlan, traffic: Traffic, needs: Needs = NO_NEEDS) -> RolloutForecast:
    """Return how long each step and the whole plan take if the traffic stays as it is and the analysis finds nothing.

    A step takes its dwell time, or until the challenger has answered enough calls if that is longer. A share of the
    entities is a share of the calls on average only: with few entities it may be far off.
    """
    steps = tuple(
        _forecast_step(plan, step, traffic, needs) for step in plan.steps if step.weight_percent < WHOLE_PERCENT
    )
    total = sum(step.seconds for step in steps if step.seconds is not None)
    never = next((step for step in steps if step.seconds is None), None)
    if never is not None:
        return RolloutForecast(steps, None, f"Never at today's traffic: {never.weight_percent} % {never.words}.")
    warm = f"the old champion is kept warm for {duration_words(plan.keep_warm_seconds)} more"
    begins = "At once after the warm-up"
    if steps:
        rate = f"{traffic.requests_per_second:.3g} requests/s"
        frozen = ", freeze windows not counted" if plan.freezes else ""
        begins = f"About {duration_words(total)} until the challenger is champion at {rate}{frozen}"
    late = [f"{step.weight_percent} %" for step in steps if (step.seconds or 0) > plan.maximum_seconds]
    asks = f" It would ask for a person at {', '.join(late)}: {_limit(plan)}." if late else ""
    return RolloutForecast(steps, total, f"{begins}; {warm}.{asks}")


def _forecast_step(plan: RolloutPlan, step: Step, traffic: Traffic, needs: Needs) -> StepForecast:
    share = step.weight_percent / WHOLE_PERCENT
    is_judged = plan.strategy is Strategy.CANARY
    requests = max(step.min_requests, needs.requests, 1) if is_judged else step.min_requests
    rate = traffic.requests_per_second * share
    if requests and not (isfinite(rate) and rate > 0):
        return StepForecast(step.weight_percent, None, "gets no traffic")
    entities = None if traffic.entities is None else traffic.entities * share
    if is_judged and entities is not None and entities < needs.entities:
        words = f"meets about {entities:,.0f} entities a day, and the analysis asks for {needs.entities:,}"
        return StepForecast(step.weight_percent, None, words)
    gathering_seconds = requests / rate if requests else 0.0
    if gathering_seconds <= step.dwell_seconds:
        return StepForecast(step.weight_percent, step.dwell_seconds, f"dwells {duration_words(step.dwell_seconds)}")
    words = f"waits {duration_words(gathering_seconds)} for {requests:,} requests"
    if gathering_seconds > plan.maximum_seconds:
        words += f", longer than {_limit(plan)}"
    return StepForecast(step.weight_percent, gathering_seconds, words)


def _limit(plan: RolloutPlan) -> str:
    return f"the plan's maximum of {duration_words(plan.maximum_seconds)} a step"
