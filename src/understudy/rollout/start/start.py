"""Starts a rollout: whether two versions fit, the risk of the change, the plan, the forecast of its duration."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from math import sqrt
from shlex import quote
from typing import Any, NamedTuple

from understudy.core.canary.limits import CanaryPolicy
from understudy.core.canary.outcome_limits import OutcomeLimit
from understudy.core.canary.reference_rule import MIN_REQUESTS
from understudy.core.rollout.expected_traffic import EntityCalls, Traffic
from understudy.core.rollout.forecast import Needs, RolloutForecast, forecast
from understudy.core.rollout.outcome_forecast import OutcomeBefore, needed_outcome
from understudy.core.rollout.plan import Grade, RolloutPlan, VersionFacts, grade_risk, plan_for, plan_to_json
from understudy.core.rollout.plan_reader import plan_violations, read_plan
from understudy.core.routing.policy import Role
from understudy.core.schema.input_diff import NO_DIFFERENCES, InputDifferences, input_differences
from understudy.core.windows.window import MICRO, Window
from understudy.errors import NotRegistered, PolicyRefused, RegistryError, VersionNotReady, Violation
from understudy.ports.monitoring.window_log import WindowLog
from understudy.ports.prediction_log.prediction_history import CallFrequencies
from understudy.ports.registry.registry import Registry, VersionRecord
from understudy.ports.rollout.rollout_store import NewRollout
from understudy.rollout.analysis import DEFAULT, POLICY_NAMES, step_limits
from understudy.rollout.start.judge_plan import judge_problems
from understudy.rollout.start.metric_plan import metric_problems
from understudy.rollout.start.outcome_plan import outcome_problems
from understudy.rollout.start.score_warning import score_warnings
from understudy.rollout.start.time_allowed import Allowed, champion_p95_us, deadline_warnings

TRAFFIC_SECONDS = 3_600.0
"""Today's traffic is the last hour's."""
ENTITIES_SECONDS = 86_400.0
"""Entities are those of the last day's calls."""
MAX_ENTITY_CALLS = 200_000
"""Of which the newest are counted."""
ENTITIES_WAIT_SECONDS = 2.0
"""Longest time that they are counted in; a start does without them."""
OUTCOMES_WAIT_SECONDS = 4.0
"""Longest time in which outcomes that hold a step are measured for the forecast."""
MeasureBefore = Callable[[str, int, OutcomeLimit, float], Awaitable[OutcomeBefore | None]]
"""From a model, its champion's id, an outcome and a moment: what it came to of late; ``None`` if there is nothing."""
RETIRED = "retired"
_BRING_BACK = "Bring it back first: UPDATE ModelVersion SET status = 'staging' WHERE id = {}"
SAID_ELSEWHERE = {
    "dwell_seconds": "expected in an object of /steps, each step has its own",
    "min_requests": "expected in an object of /steps, each step has its own",
    "maximum_seconds": "expected at /maximum_seconds of the plan",
}
"""Limits that a plan gives at other places than ``canary_limits``, where they would do nothing."""


class Prepared(NamedTuple):
    """A rollout that has not begun; ``generation`` is that of the policy which it was prepared for."""

    champion: VersionRecord
    challenger: VersionRecord
    grade: Grade
    plan: RolloutPlan
    forecast: RolloutForecast
    slow_us: int | None
    generation: int
    inputs: InputDifferences = NO_DIFFERENCES
    deadline_warnings: tuple[str, ...] = ()
    """Why a version cannot be judged, or fails, by the time that it has."""
    score_warnings: tuple[str, ...] = ()
    """Why its scores are not compared with the champion's before its first share."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """All that is to be known before it is confirmed."""
        return (*self.forecast.warnings, *self.deadline_warnings, *self.score_warnings)

    def rollout(self, salt: str | None) -> NewRollout:
        """Return what is to be started."""
        plan = replace(self.plan, salt=salt)
        return NewRollout(self.champion.model_name, self.challenger.version, plan, salt, self.slow_us)


async def prepare(
    registry: Registry,
    windows: WindowLog,
    model_name: str,
    version: str,
    plan_source: str | Mapping[str, Any] | None,
    *,
    now: float,
    budget_ratio: float,
    freezes: Sequence[str] = (),
    expect_different_scores: bool = False,
    entities: CallFrequencies | None = None,
    outcome_before: MeasureBefore | None = None,
) -> Prepared:
    """Return what starting a rollout would mean.

    ``plan_source`` is a plan's name, its weights or its JSON object; ``None``: the plan that the risk asks for.
    ``budget_ratio`` is the challenger's share of a deadline, where the champion may stand in for it.
    ``freezes`` are windows beside the plan's own, as :mod:`~understudy.core.rollout.freeze` reads them, and scores that
    differ are expected where the plan or ``expect_different_scores`` says so. ``entities`` counts the last day's, and
    ``outcome_before`` measures outcomes that hold a step; a log that cannot be read leaves them unknown.

    Raises:
        NotRegistered: The model has no policy, or no such version.
        PolicyRefused: The plan cannot be used, or the version is retired, or the champion or shadow already.
    """
    policy = (await registry.show_model(model_name)).policy
    if policy is None:
        raise NotRegistered(f"{model_name} has no serving policy, so no champion to compare with")
    champion = await registry.show_version(model_name, policy.champion)
    challenger = await registry.show_version(model_name, version)
    _require_free(challenger, champion, policy.shadow, model_name)
    grade = grade_risk(_facts_of(champion), _facts_of(challenger))
    plan = plan_for(grade.risk) if plan_source is None else _read(plan_source)
    if freezes:
        source = plan_to_json(plan)
        plan = _read({**source, "freezes": [*source.get("freezes", ()), *freezes]})
    if expect_different_scores:
        plan = replace(plan, expect_different_scores=True)
    seen = await windows.of_versions([champion.id, challenger.id], now - TRAFFIC_SECONDS, now)
    traffic = _traffic_of(seen, champion.id, now)._replace(entities=await _entities(entities, champion.id, now))
    needs = await _with_outcomes(_needs_of(plan), outcome_before, champion, now)
    # In a thread: a long ladder over many entities takes seconds, and others are answered by this event loop.
    outlook = await asyncio.to_thread(forecast, plan, traffic, needs)
    slow_us = champion_p95_us(seen, champion.id)
    inputs = input_differences(champion.input_schema, challenger.input_schema)
    has_stand_in = policy.fallback
    allowed = Allowed(champion if has_stand_in else challenger, budget_ratio if has_stand_in else 1.0, budget_ratio)
    warnings = deadline_warnings(seen, champion, challenger, allowed)
    unseen = () if plan.expect_different_scores else score_warnings(policy, champion, challenger)
    return Prepared(champion, challenger, grade, plan, outlook, slow_us, policy.generation, inputs, warnings, unseen)


def _require_free(challenger: VersionRecord, champion: VersionRecord, shadow: str | None, model_name: str) -> None:
    """Go on only with a version that may get the role of a challenger."""
    if challenger.version == champion.version:
        raise PolicyRefused(
            f"version {challenger.version} is the champion of {model_name} already",
            hint=f"Name another version: understudy version list {quote(model_name)}.",
        )
    if challenger.status == RETIRED:
        raise PolicyRefused(
            f"version {challenger.version} of {model_name} is retired and cannot be challenger",
            hint=_BRING_BACK.format(challenger.id),
        )
    if challenger.version == shadow:
        raise PolicyRefused(
            f"version {challenger.version} of {model_name} is its shadow, and cannot be challenger at once",
            hint=f"Take that role away first: understudy model set {quote(model_name)} --shadow none --reason '…'",
        )


def require_same_inputs(prepared: Prepared) -> None:
    """Go on only when calls that fit the champion can fit the challenger.

    Raises:
        VersionNotReady: Every one of them would fail; the detail names the inputs.
    """
    if prepared.inputs.breaking:
        champion, challenger = prepared.champion, prepared.challenger
        named = "; ".join(InputDifferences(prepared.inputs.breaking).lines())
        raise VersionNotReady(
            f"every call that fits {champion.version}, the champion, would fail at {challenger.version}: {named}",
            hint="Register a version whose new inputs have a default, or come from the feature store "
            "(docs/how-to/connect-a-model-server.md); nothing was started.",
        )


def plan_problems(source: str | Mapping[str, Any]) -> tuple[Violation, ...]:
    """Return what keeps a rollout from starting with a plan, the limits of its analysis included; nothing if it can."""
    violations = plan_violations(source)
    if violations:
        return violations
    plan = read_plan(source)
    if plan.canary_policy not in POLICY_NAMES:
        return (Violation("/canary_policy", f"expected one of {', '.join(POLICY_NAMES)}"),)
    misplaced = [name for name in SAID_ELSEWHERE if name in plan.canary_limits]
    if misplaced:
        return tuple(Violation(f"/canary_limits/{name}", SAID_ELSEWHERE[name]) for name in misplaced)
    of_lists = outcome_problems(plan) or metric_problems(plan) or judge_problems(plan)
    if of_lists:
        return of_lists
    try:
        for step in plan.steps:
            step_limits(plan, step)
    except (TypeError, ValueError) as problem:
        # What was given is not repeated.
        return (Violation("/canary_limits", str(problem).partition(", got ")[0]),)
    return ()


def _read(source: str | Mapping[str, Any]) -> RolloutPlan:
    problems = plan_problems(source)
    if problems:
        raise PolicyRefused(
            f"the plan cannot be used: {'; '.join(f'{pointer}: {detail}' for pointer, detail in problems)}",
            hint="A plan is default, fast, rolling, blue_green, weights such as 2,10,50,100, or @file.json.",
        )
    return read_plan(source)


def _facts_of(version: VersionRecord) -> VersionFacts:
    return VersionFacts(
        version.version,
        version.artifact_digest,
        version.base_model or _noted(version.metrics, "base_model"),
        version.family or _noted(version.metrics, "family"),
        version.framework,
    )


def _noted(metrics: Any, name: str) -> str | None:
    """Return what engineers noted in ``ModelVersion.metrics`` before there were columns; it may be any JSON."""
    value = metrics.get(name) if isinstance(metrics, Mapping) else None
    return value if isinstance(value, str) else None


def _needs_of(plan: RolloutPlan) -> Needs:
    """Return what the analysis that a plan names asks for."""
    if plan.canary_policy != DEFAULT:
        return Needs(requests=MIN_REQUESTS)
    limits = CanaryPolicy.from_json(plan.canary_limits)
    return Needs(entities=limits.min_entities, policy=limits)


async def _with_outcomes(needs: Needs, measure: MeasureBefore | None, champion: VersionRecord, now: float) -> Needs:
    """Return the needs with what it takes to show each outcome that holds a step; one not known in time is named."""
    held = [] if needs.policy is None else [limit for limit in needs.policy.outcomes if limit.holds_step]
    if not held:
        return needs
    known: dict[str, OutcomeBefore] = {}
    try:
        async with asyncio.timeout(OUTCOMES_WAIT_SECONDS):
            for limit in held:
                found = measure and await measure(champion.model_name, champion.id, limit, now)
                if found:
                    known[limit.name] = found
    except (RegistryError, TimeoutError):
        pass  # those that were measured are forecast
    return needs._replace(
        outcomes=tuple(needed_outcome(limit, known[limit.name]) for limit in held if limit.name in known),
        unknown_outcomes=tuple(limit.name for limit in held if limit.name not in known),
    )


async def _entities(history: CallFrequencies | None, version_id: int, now: float) -> EntityCalls | None:
    """Return how the champion's calls are spread over entities; ``None`` where that is not known in time."""
    if history is None:
        return None
    try:
        found = await history.call_frequencies(version_id, now - ENTITIES_SECONDS, now, MAX_ENTITY_CALLS)
    except RegistryError:
        return None
    return EntityCalls(found) if found else None


def _traffic_of(windows: Sequence[Window], champion_id: int, now: float) -> Traffic:
    calls = [window for window in windows if window.key.role is not Role.SHADOW]
    if not calls:
        return Traffic(0.0)
    first = min(window.key.start for window in calls)
    judged = sum(window.volume - window.hurried_calls for window in calls)
    own = [window for window in calls if window.key.model_version_id == champion_id]
    entities, requests = (sum(getattr(window, name) for window in own) for name in ("entities", "calls"))
    answered = sum(window.answered for window in own)
    traffic = Traffic(judged / max(15.0, now - first), log_latency_deviation=_log_deviation(own, answered))
    if not (entities and requests):
        return traffic
    errors = sum(window.error_entities for window in own) / entities
    return traffic._replace(error_rate=errors, entities_per_request=min(1.0, entities / requests))


def _log_deviation(windows: Sequence[Window], answered: int) -> float | None:
    """Return the standard deviation of the logarithm of the latency of the answered calls."""
    if not answered:
        return None
    mean = sum(window.log_latency for window in windows) / MICRO / answered
    return sqrt(max(0.0, sum(window.log_latency_squares for window in windows) / MICRO / answered - mean**2))
