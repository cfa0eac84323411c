"""Whether a rollout's ladder can end at today's traffic, its expected duration, and the minimum detectable effect."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import NamedTuple

import numpy as np

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.metrics.paired_minutes import MIN_MINUTES, MIN_MINUTES_ALONE
from understudy.core.canary.power.power import (
    minimum_detectable_error_ratio,
    minimum_detectable_latency_ratio,
    shows_error_ratio,
)
from understudy.core.durations import duration_words
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic, entities_of, share_of_calls
from understudy.core.rollout.outcome_forecast import NeededOutcome, counted_by, is_shown, never_words
from understudy.core.rollout.plan import (
    WHOLE_PERCENT,
    RolloutPlan,
    Step,
    Strategy,
    usual_maximum_seconds,
    usual_step,
)
from understudy.core.statistics.detectable_effect import Exposure
from understudy.core.windows.window import WINDOW_SECONDS

OFTEN = 0.95
"""Share of the rollouts that a step is to end in, or else it is warned of."""
_MEDIAN, _SELDOM = 0.0, -1.645
"""Standard deviations: half of the rollouts have less traffic than the first, one in twenty less than the second."""
_HEAVY_CALLS = 20
"""Calls of one entity in a window from which on it has errors in more windows than others."""
_HEAVY_RATIO = 5
"""How many times the calls of the mean entity in a window these have to be."""
_HORIZON_SECONDS = 30 * 86_400.0
"""Entities or evidence that take longer do not come: no operator waits for a step of a month."""
_MOMENTS: list[float] = np.geomspace(1.0, _HORIZON_SECONDS, 1_500).tolist()
_FIRST_SHARES = (1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50)
"""First shares that are tried, in percent, where a ladder cannot end."""


class Needs(NamedTuple):
    """What the analysis asks of the challenger in each step, beside the plan's own ``min_requests``."""

    requests: int = 0
    entities: int = 0
    """In the rollout so far."""
    policy: CanaryPolicy | None = None
    """Its regression of errors must have been visible; ``None`` for an analysis that asks for none."""
    outcomes: tuple[NeededOutcome, ...] = ()
    """Each holds every step until it is shown to be within its margin."""
    unknown_outcomes: tuple[str, ...] = ()
    """Names of those that do so too, and of which nothing is known."""


NO_NEEDS = Needs()


class StepForecast(NamedTuple):
    """One step: ``seconds`` is ``None`` when it would never end; in words, why it takes that long."""

    weight_percent: int
    seconds: float | None
    words: str
    late_seconds: float | None = None
    """In 19 of 20 rollouts it takes no longer, by which entities get the share; ``None``: it may never end."""
    error_ratio: float | None = None
    """The smallest regression of errors that is visible at its end; ``None`` for none at all, or not known."""
    latency_ratio: float | None = None
    """The same of the typical latency, at best."""


class RolloutForecast(NamedTuple):
    """All steps below 100 %; ``seconds`` until the challenger is champion, ``None`` for never as things are."""

    steps: tuple[StepForecast, ...]
    seconds: float | None
    sentence: str
    warnings: tuple[str, ...] = ()
    """Why the ladder cannot end by itself, or may not, and which one can."""
    nearest: tuple[int, ...] | None = None
    """Where it cannot: the weights of the ladder with the smallest first share that can, if one does."""


def forecast(plan: RolloutPlan, traffic: Traffic, needs: Needs = NO_NEEDS) -> RolloutForecast:
    """Return how long each step and the whole plan take if the traffic stays as it is and the analysis finds nothing.

    A step takes its dwell time, or until the challenger has answered enough calls of enough entities, and a regression
    of errors as large as the analysis asks about would have been seen, if that is longer. That is the median over the
    salts: with few entities, or a few heavy ones, a rollout may get far less of the traffic than its share.
    """
    steps = _forecast_steps(plan, traffic, needs)
    never = next((step for step in steps if step.seconds is None), None)
    total = None if never else sum(step.seconds for step in steps if step.seconds is not None)
    sentence = f"Never at today's traffic: {never.weight_percent} % {never.words}." if never else ""
    if total is not None:
        sentence = _sentence(plan, traffic, steps, total)
    stuck = [step for step in steps if _is_stuck(plan, step)]
    warnings = [_warning(plan, step) for step in stuck[:1]]
    nearest = _nearest(plan, traffic, needs) if stuck and traffic.requests_per_second > 0 else None
    if nearest is not None:
        weights, seconds = nearest
        named = ",".join(map(str, weights))
        warnings.append(f"the nearest ladder that can end takes about {duration_words(seconds)}: --plan {named}")
    heavy = _heavy_words(traffic) if needs.policy is not None and plan.strategy is Strategy.CANARY else None
    warnings += [heavy] if heavy else []
    if plan.strategy is Strategy.CANARY and traffic.entities is None and needs.entities:
        warnings.append(
            f"how many entities there are is not known, and each step asks for {needs.entities:,}: "
            "the forecast takes them for granted"
        )
    warnings += _unknown_outcomes_words(traffic, needs)
    warnings += _metrics_words(plan, needs)
    warnings += _judge_words(plan, needs)
    return RolloutForecast(steps, total, sentence, tuple(warnings), nearest[0] if nearest else None)


def _unknown_outcomes_words(traffic: Traffic, needs: Needs) -> list[str]:
    """Say which outcomes hold each step without a forecast."""
    unknown = [f"outcome {name}: what it comes to for the champion" for name in needs.unknown_outcomes]
    if traffic.entities is None:
        unknown += [f"{outcome.words}: how many entities there are" for outcome in needs.outcomes]
    return [f"{words} is not known, so neither is how long it holds each step" for words in unknown]


def _metrics_words(plan: RolloutPlan, needs: Needs) -> list[str]:
    """Say which metrics of an operator's own hold each step, of a plan whose steps wait for the analysis."""
    metrics = () if needs.policy is None or plan.strategy is not Strategy.CANARY else needs.policy.metrics
    least, alone = (duration_words(60.0 * minutes) for minutes in (MIN_MINUTES, MIN_MINUTES_ALONE))
    return [
        f"metric {limit.name} of {limit.source} is not known before the start: each step waits until it was compared, "
        f"for {least} of the rollout at least, and {alone} where {limit.source} lacks the champion's last two hours"
        for limit in metrics
    ]


def _judge_words(plan: RolloutPlan, needs: Needs) -> list[str]:
    """Say how long a judge holds the first step at least, of a plan whose steps wait for the analysis."""
    judge = None if needs.policy is None or plan.strategy is not Strategy.CANARY else needs.policy.judge
    if judge is None:
        return []
    seconds = 60.0 * judge.min_judgements / judge.calls_per_minute
    words = f"judge {judge.name} holds each step until it has judged {judge.min_judgements:,} pairs of answers, "
    words += f"{duration_words(seconds)} at {judge.calls_per_minute} calls a minute"
    return [f"{words}, for {judge.min_judgements * judge.cost_per_call:,.2f} in all" if judge.cost_micros else words]


def _sentence(plan: RolloutPlan, traffic: Traffic, steps: Sequence[StepForecast], total: float) -> str:
    warm = f"the old champion is kept warm for {duration_words(plan.keep_warm_seconds)} more"
    begins = "At once after the warm-up"
    if steps:
        rate = f"{traffic.requests_per_second:.3g} requests/s"
        frozen = ", freeze windows not counted" if plan.freezes else ""
        begins = f"About {duration_words(total)} until the challenger is champion at {rate}{frozen}"
    late = [f"{step.weight_percent} %" for step in steps if (step.seconds or 0) > plan.maximum_seconds]
    asks = f" It would ask for a person at {', '.join(late)}: {_limit(plan)}." if late else ""
    return f"{begins}; {warm}.{asks}"


def _is_stuck(plan: RolloutPlan, step: StepForecast) -> bool:
    """Whether a step waits for an operator, in more rollouts than seldom."""
    return step.late_seconds is None or step.late_seconds > plan.maximum_seconds


def _warning(plan: RolloutPlan, step: StepForecast) -> str:
    if step.seconds is None or step.seconds > plan.maximum_seconds:
        return f"this ladder cannot end at today's traffic: {step.weight_percent} % {step.words}"
    often = f"{100 * OFTEN:.0f} %"
    late = "never end" if step.late_seconds is None else f"take {duration_words(step.late_seconds)}"
    return (
        f"this ladder may not end at today's traffic: in fewer than {often} of rollouts the entities of "
        f"{step.weight_percent} % are enough for {_limit(plan)}; it may {late}"
    )


def _heavy_words(traffic: Traffic) -> str | None:
    """Say that one entity's calls may hold a step, whichever version answers them."""
    share = traffic.entities.heaviest_share if traffic.entities else 0.0
    calls = share * traffic.requests_per_second * WINDOW_SECONDS
    if calls < max(_HEAVY_CALLS, _HEAVY_RATIO / max(traffic.entities_per_request, 1e-9)):
        return None
    return (
        f"one entity makes {100 * share:.2g} % of the calls, {calls:,.0f} in {WINDOW_SECONDS} s: its side shows more "
        "errors, so a step may hold until a person decides"
    )


def _nearest(plan: RolloutPlan, traffic: Traffic, needs: Needs) -> tuple[tuple[int, ...], float] | None:
    """Return the weights of the first ladder that ends in nearly all rollouts, by its first share, and its seconds."""
    for first in _FIRST_SHARES:
        kept = tuple(step for step in plan.steps if step.weight_percent >= first)
        if first <= plan.steps[0].weight_percent:
            continue
        weights = tuple(dict.fromkeys((first, *(step.weight_percent for step in kept))))
        # As --plan reads weights: of a plan with other times, such as fast, they would begin a slower one.
        steps = tuple(usual_step(weight, Strategy.CANARY)._replace(weight_percent=weight) for weight in weights)
        named = replace(plan, strategy=Strategy.CANARY, steps=steps, maximum_seconds=usual_maximum_seconds(steps))
        found = _forecast_steps(named, traffic, needs)
        if not any(_is_stuck(named, step) for step in found):
            return weights, sum(step.seconds or 0.0 for step in found)
    return None


def _forecast_steps(plan: RolloutPlan, traffic: Traffic, needs: Needs) -> tuple[StepForecast, ...]:
    """Return the steps below 100 %, each after those before it."""
    below = [step for step in plan.steps if step.weight_percent < WHOLE_PERCENT]
    is_judged = plan.strategy is Strategy.CANARY
    needs = needs if is_judged else NO_NEEDS
    found: list[StepForecast] = []
    usual, unlucky = _Ladder(traffic, needs, _MEDIAN), _Ladder(traffic, needs, _SELDOM)
    for step in below:
        asked = step._replace(min_requests=max(step.min_requests, needs.requests, 1 if is_judged else 0))
        late, _ = unlucky.step(asked)
        seconds, words = usual.step(asked)
        if seconds is not None and seconds > plan.maximum_seconds:
            words += f", longer than {_limit(plan)}"
        found.append(StepForecast(step.weight_percent, seconds, words, late, *usual.detectable()))
    return tuple(found)


class _Ladder:
    """A rollout that goes on step by step with the share of the traffic that its entities make."""

    def __init__(self, traffic: Traffic, needs: Needs, z: float) -> None:
        self._traffic = traffic
        self._needs = needs
        self._z = z
        self._past: list[tuple[float, float]] = []
        """Share of the entities, and seconds, of each step so far."""

    def step(self, step: Step) -> tuple[float | None, str]:
        """Return how long a step takes, ``None`` for never, and why; the next one begins after it."""
        share = step.weight_percent / WHOLE_PERCENT
        rate = self._traffic.requests_per_second * self._share_of_calls(share)
        waits: list[tuple[float, str]] = [(step.dwell_seconds, f"dwells {duration_words(step.dwell_seconds)}")]
        if step.min_requests:
            seconds = step.min_requests / rate if isfinite(rate) and rate > 0 else inf
            waits.append((seconds, f"{step.min_requests:,} requests"))
        if self._needs.entities and self._traffic.entities is not None and rate > 0:
            seconds = _first_moment(lambda passed: self._entities(share, passed) >= self._needs.entities)
            waits.append((seconds, f"{self._needs.entities:,} entities"))
        policy = self._needs.policy
        if policy is not None and rate > 0:
            ratio = policy.detectable_ratio_at(step.weight_percent)
            seconds = _first_moment(
                lambda passed: shows_error_ratio(
                    self._exposure(share, passed), policy, self._traffic.error_rate, step.weight_percent
                )
            )
            waits.append((seconds, f"enough requests to see {ratio:.3g}x the errors"))
        waits += [self._outcome_wait(outcome, share) for outcome in self._needs.outcomes]
        if policy is not None and policy.metrics:
            passed = sum(seconds for _, seconds in self._past)
            waits.append((60.0 * MIN_MINUTES - passed, f"{MIN_MINUTES} minutes of each metric"))
        if policy is not None and policy.judge is not None:
            passed = sum(seconds for _, seconds in self._past)
            needed = 60.0 * policy.judge.min_judgements / policy.judge.calls_per_minute
            waits.append((needed - passed, f"{policy.judge.min_judgements} judgements"))
        seconds, words = max(waits, key=lambda wait: wait[0])
        # What is visible after a step that does not end is what its usual time shows.
        self._past.append((share, seconds if isfinite(seconds) else step.dwell_seconds))
        if not isfinite(seconds):
            return None, self._never(share, rate, words)
        return seconds, words if seconds == step.dwell_seconds else f"waits {duration_words(seconds)} for {words}"

    def detectable(self) -> tuple[float | None, float | None]:
        """Return the smallest ratios of errors and of latency that would be visible by now."""
        policy = self._needs.policy
        if policy is None:
            return None, None
        traffic, exposure = self._traffic, self._exposure(0.0, 0.0)
        errors = minimum_detectable_error_ratio(exposure, policy, traffic.error_rate)
        latency = inf
        if traffic.log_latency_deviation is not None:
            per = max(traffic.entities_per_request, 1e-9)
            calls = Exposure(exposure.champion / per, exposure.challenger / per, exposure.windows)
            latency = minimum_detectable_latency_ratio(calls, policy, traffic.log_latency_deviation)
        return errors if isfinite(errors) else None, latency if isfinite(latency) else None

    def _share_of_calls(self, share: float) -> float:
        entities = self._traffic.entities
        return share_of_calls(share, entities.concentration if entities else 0.0, self._z)

    def _entities(self, share: float, passed: float) -> float:
        """Return how many entities met the challenger after so many seconds of the next step."""
        known: EntityCalls | None = self._traffic.entities
        if known is None:
            return inf
        met, before = 0.0, 0.0
        parts = [*self._past, (share, passed)]
        for number, (part, _) in enumerate(parts):
            # A larger share keeps the entities of the smaller one.
            seconds = sum(length for _, length in parts[number:])
            met += (part - before) * known.met_in(seconds * self._traffic.requests_per_second)
            before = part
        return entities_of(share, met / share, self._z) if share else 0.0

    def _outcome_wait(self, outcome: NeededOutcome, share: float) -> tuple[float, str]:
        """Return after how many seconds of the next step an outcome lets it go; at once where entities are unknown."""
        known, rate = self._traffic.entities, self._traffic.requests_per_second
        if known is None or not rate:
            return 0.0, outcome.words

        def is_over(passed: float) -> bool:
            return is_shown(outcome, counted_by([*self._past, (share, passed)], known, rate, outcome.within_seconds))

        seconds = _first_moment(is_over)
        if not isfinite(seconds):
            return seconds, never_words(outcome, share, known, _HORIZON_SECONDS)
        counted = counted_by([*self._past, (share, seconds)], known, rate, outcome.within_seconds)
        return seconds, f"{outcome.words}, with {counted.challenger:,.0f} challenger entities"

    def _exposure(self, share: float, passed: float) -> Exposure:
        """Return the trials of both sides after so many seconds of the next step; with none, those so far."""
        parts = np.array([*self._past, (share, passed)], np.float64).T
        rate = self._traffic.requests_per_second * self._traffic.entities_per_request
        shares = np.array([self._share_of_calls(part) for part in parts[0]], np.float64)
        trials = parts[1] * rate
        return Exposure(trials * (1 - shares), trials * shares, int(parts[1].sum() // WINDOW_SECONDS))

    def _never(self, share: float, rate: float, words: str) -> str:
        known = self._traffic.entities
        if not (isfinite(rate) and rate > 0):
            return "gets no traffic"
        if words.startswith("waits"):  # for an outcome, which says why itself
            return words
        if known is not None and words.endswith("entities"):
            met, asked = known.entities * share, self._needs.entities
            return f"meets about {met:,.0f} of {known.entities:,} entities, and the analysis asks for {asked:,}"
        return f"waits more than {duration_words(_HORIZON_SECONDS)} for {words}"


def _first_moment(is_over: Callable[[float], bool]) -> float:
    """Return after how many seconds something is over that stays so, to 1 %; infinity beyond the horizon."""
    place = bisect_left(_MOMENTS, True, key=is_over)
    return _MOMENTS[place] if place < len(_MOMENTS) else inf


def _limit(plan: RolloutPlan) -> str:
    return f"the plan's maximum of {duration_words(plan.maximum_seconds)} a step"
