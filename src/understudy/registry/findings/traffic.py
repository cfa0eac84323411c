"""Findings about who gets which calls, and whether anything watches that."""

from shlex import quote

from understudy.core.durations import duration_words
from understudy.registry.findings.finding import Finding, State

MIN_CALLS = 100
"""Of a challenger or an arm in an hour, before a share of failing ones says something."""
MAX_FAILING_RATIO = 0.01
"""Share of a challenger's or an arm's calls that may fail."""


def judge_guard(model: str, guard: str, failure: str | None, *, is_watched: bool, has_monitor: bool) -> Finding:
    """Judge the split of a model: has its guard failed within a day, and does anything watch it?

    Args:
        model: Its name.
        guard: ``ServingPolicy.guard``.
        failure: What a guard that failed within a day found.
        is_watched: Whether a guard or a rollout is open.
        has_monitor: Whether a monitor leads: without one an open guard or rollout is judged by nothing.
    """
    name = f"guard {model}"
    if failure is not None:
        advice = f"understudy rollout list {quote(model)} has the guard; understudy rollout show its evidence."
        return Finding(name, State.PROBLEM, failure, advice, model)
    if not has_monitor:
        what = f"no monitor leads, so nothing watches the split or its rollout, or takes it back (guard = {guard})"
        advice = f"understudy serve monitor runs one; until then: understudy rollback {quote(model)} --reason '…'"
        return Finding(name, State.PROBLEM, what, advice, model)
    if is_watched:
        return Finding(name, State.GOOD, f"the split is watched, guard = {guard}", model_name=model)
    why = "guard is off" if guard == "off" else "no guard is open; the monitor opens one"
    advice = f"understudy model set {quote(model)} --guard rollback, or understudy rollout start, watches a challenger."
    return Finding(name, State.WARNING, f"the split is watched by nothing: {why}", advice, model)


def judge_gate(model: str, waiting_for: str, reason: str, waited_seconds: float) -> Finding:
    """Judge a rollout that waits at a gate: a person has to decide, or a service still has time to answer.

    Args:
        model: Its model.
        waiting_for: ``approval``, or ``gate``.
        reason: What waits, and for whom.
        waited_seconds: Since it came to the gate.
    """
    what = f"{reason}; for {duration_words(waited_seconds)} now"
    advice = f'understudy rollout show {quote(model)}, then: understudy rollout approve {quote(model)} --reason "…"'
    state = State.WARNING if waiting_for == "approval" else State.GOOD
    return Finding(f"gate {model}", state, what, advice if state is State.WARNING else "", model)


def judge_failing_share(
    model: str, version: str, errors: int, calls: int, *, has_fallback: bool, hours: int = 1
) -> Finding:
    """Judge a challenger or an arm that failed more than ``MAX_FAILING_RATIO`` of its calls in the last hour, or day.

    Args:
        model: Its model.
        version: Its label.
        errors: Calls that it failed.
        calls: Its calls.
        has_fallback: Whether the champion answers what it fails.
        hours: Of how long the calls are.
    """
    lately = "hour" if hours == 1 else "day, and fewer in the last hour"
    then = "the champion answers them, later" if has_fallback else "their callers get the error"
    what = f"fails {errors / calls:.1%} of its calls, {errors:,} of {calls:,} in the last {lately}; {then}"
    return Finding(
        f"{model} {version} share",
        State.WARNING,
        what,
        f"understudy rollout show {quote(model)} has what was found; understudy rollback {quote(model)} --reason '…' "
        "takes its calls away.",
        model,
        is_pressing=True,
    )


def judge_rejected(model: str, why: str, *, is_served: bool) -> Finding:
    """Judge a policy of which proxies cannot use something; without a champion the model is not served at all."""
    if is_served:
        advice = "Proxies do without it: correct the version's schema."
        return Finding(f"policy {model}", State.WARNING, why, advice, model, is_pressing=True)
    return Finding(f"policy {model}", State.PROBLEM, why, "No proxy can use it: correct the version's schema.", model)
