"""The checks of metrics of an operator's own, which a Prometheus API gives for champion and challenger.

Each can roll back, and holds a step until it is read and compared. One that cannot be read takes nothing back and lets
nothing pass.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import exp, log
from sys import float_info
from typing import NamedTuple

import numpy as np

from understudy.core.canary.decision import Check, CheckState, Evidence, Unit, Worse
from understudy.core.canary.evidence.check_input import INTERVAL_ALPHA, CheckInput, Comparison, Keys, evidence_row
from understudy.core.canary.limits import Stage
from understudy.core.canary.messages import unproven_words
from understudy.core.canary.metric_limits import MAX_METRICS, MetricLimit
from understudy.core.canary.metric_samples import SAMPLE_SECONDS, MetricSamples, ReadProblem, segment_of
from understudy.core.canary.metrics.paired_minutes import (
    Minutes,
    Wander,
    is_beyond_without_chance,
    minutes_asked,
    ratio_error,
    wander_of,
    z_beyond,
)
from understudy.core.durations import clock_words, duration_words
from understudy.core.statistics.sequential_evidence import (
    half_normal_log_evidence,
    mixture_radius,
    processes_of,
)

_METRIC = Check("metric", "metric", Unit.NUMBER, Worse.BEYOND_LIMIT, has_interval=True, is_drawn=False)
METRICS = tuple(replace(_METRIC, name=f"metric_{number}") for number in range(1, MAX_METRICS + 1))
"""By their place in the plan, so that labels are few whatever metrics are called."""
MAX_AGE_SECONDS = 300
"""The newest minute of both versions may be this old: of an older one the metric says nothing of now."""
_FIRST_SEGMENT_SHARE = 0.9
"""Of alpha, that the first day spends; the n-th day after it has ``1 / n (n + 1)`` of the rest."""
_NOTHING = Comparison(None, None, None, None, None)
_PROBLEMS = {
    ReadProblem.UNKNOWN_SOURCE: "UNDERSTUDY_METRIC_SOURCES of the monitor that leads has no source {source}",
    ReadProblem.DOWN: "{source} cannot be reached",
    ReadProblem.SLOW: "{source} does not answer in time",
    ReadProblem.REDIRECTS: "{source} answers with a redirect, which is not followed",
    ReadProblem.DENIED: "{source} refuses the monitor's credentials",
    ReadProblem.WRONG_QUERY: "{source} cannot run the query",
    ReadProblem.FAILED: "{source} answers with an error",
    ReadProblem.HUGE: "{source} answers with more than is read",
    ReadProblem.UNREADABLE: "{source} does not answer as the HTTP API of Prometheus does",
    ReadProblem.SEVERAL_SERIES: "the query gives more than one series for a version, and has to sum them or pick one",
    ReadProblem.NO_SERIES_OF_CHAMPION: "no series for the champion yet",
    ReadProblem.NO_SERIES_OF_CHALLENGER: "no series for the challenger yet",
    ReadProblem.NO_SERIES: "no series for either version yet",
    ReadProblem.NO_NUMBER_OF_CHAMPION: "only NaN or infinity for the champion",
    ReadProblem.NO_NUMBER_OF_CHALLENGER: "only NaN or infinity for the challenger",
    ReadProblem.NO_NUMBER: "only NaN or infinity for both versions",
}


class _Seen(NamedTuple):
    """What is known of a metric at a moment."""

    minutes: Minutes
    wander: tuple[Wander, ...]
    unreadable: str
    """In words, why it cannot be compared at all; empty where it can be."""
    lacking: str
    """In words, what there is too little of; empty where there is enough."""


def judge_metric(number: int, inputs: CheckInput, log_needed: float) -> Evidence:
    """Return whether a metric's mean is beyond what is tolerated of the champion's, minute by minute.

    It is ``pass`` once there are enough minutes of both versions, the newest of them new, and nothing looks worse.
    """
    limit = inputs.policy.metrics[number]
    seen = _seen(inputs, number)
    tolerated = tolerated_of(limit)
    needed = log_needed + _log_segment_price(inputs.stage, inputs.now)
    keys = _keys(inputs, number, seen, needed)
    if seen.unreadable or seen.lacking:
        keys = keys._replace(against_chance=0.0, across_entities=0.0)
    row = evidence_row(
        inputs, METRICS[number], _comparison(seen), tolerated, keys, is_enough=not seen.lacking
    )._replace(subject=limit.name)
    if seen.unreadable:
        return row._replace(state=CheckState.INVALID)
    return row._replace(state=CheckState.TOO_EARLY) if seen.lacking else row


def tolerated_of(limit: MetricLimit) -> float:
    """Return the ratio of the means that is tolerated: above 1 where a larger one is worse."""
    # Never 1 itself, which does not tell the side that is worse.
    tolerated = max(limit.limit_ratio, float_info.epsilon)
    return 1 + tolerated if limit.lower_is_better else 1 - tolerated


def _sign_of(limit: MetricLimit) -> int:
    return 1 if limit.lower_is_better else -1


def is_metric(row: Evidence) -> bool:
    """Whether a row is of a metric of an operator's own."""
    return row.check in METRICS


def metrics_missing(inputs: CheckInput, rows: Sequence[Evidence]) -> list[str]:
    """Return in words which metrics hold the step: they cannot be read, or not be compared yet, or look worse."""
    parts = []
    for row in rows:
        if not is_metric(row) or row.state is CheckState.OK:
            continue
        if row.state is CheckState.UNPROVEN:
            parts.append(unproven_words(row))
            continue
        seen = _seen(inputs, METRICS.index(row.check))
        if seen.unreadable:
            parts.append(f"{row.title} cannot be read, which holds the step: {seen.unreadable}")
        elif seen.lacking:
            parts.append(f"{row.title} cannot be compared yet, which holds the step: {seen.lacking}")
    return parts


def _seen(inputs: CheckInput, number: int) -> _Seen:
    limit = inputs.policy.metrics[number]
    samples = inputs.metrics[number] if number < len(inputs.metrics) else MetricSamples()
    samples = samples.until(inputs.now)
    minutes = Minutes(np.array(samples.champion, np.float64), np.array(samples.challenger, np.float64))
    wander = wander_of(np.array(samples.past, np.float64))
    problem = _PROBLEMS.get(samples.problem, "").format(source=limit.source)
    lacking = _lacking(samples, problem, minutes_asked(wander), inputs.now)
    if samples.problem.is_unreadable:
        return _Seen(minutes, wander, problem, lacking)
    return _Seen(minutes, wander, "" if lacking else _unusable(minutes, limit, wander), lacking)


def _unusable(minutes: Minutes, limit: MetricLimit, wander: tuple[Wander, ...]) -> str:
    """Say why values that were read say nothing."""
    if min(minutes.champion.min(), minutes.challenger.min()) < 0:
        return "it has values below 0, of which a ratio says nothing"
    if not limit.lower_is_better and not minutes.champion.any():
        return "the champion has 0 in every minute, and nothing is worse than that"
    if is_beyond_without_chance(minutes, tolerated_of(limit), _sign_of(limit), wander):
        return "it is worse and has the same value in every minute, which does not say what chance does"
    return ""


def _lacking(samples: MetricSamples, problem: str, asked: int, now: float) -> str:
    if not samples.asked_at:
        return "the monitor has not asked for it yet"
    count = len(samples.times)
    counted = f"{count} of {asked} minutes with a value of both versions"
    if not count:
        return f"{counted}{problem and f', {problem}'}"
    age = now - samples.times[-1]
    if age > MAX_AGE_SECONDS:
        ended = f"the newest minute of both versions ended {duration_words(int(age))} ago, at "
        return f"{ended}{clock_words(samples.times[-1])}{problem and f', {problem}'}"
    return counted if count < asked else ""


def _log_segment_price(stage: Stage, now: float) -> float:
    """Return what evidence of a later day needs more, so that all days together spend the metric's share of alpha."""
    segment = segment_of(stage.starts[0], now)
    if segment == 0:
        return -log(_FIRST_SEGMENT_SHARE)
    return -log((1 - _FIRST_SEGMENT_SHARE) / (segment * (segment + 1)))


def _keys(inputs: CheckInput, number: int, seen: _Seen, log_needed: float) -> Keys:
    """Return both keys, made of one z-score of each process; a metric knows no entities."""
    limit = inputs.policy.metrics[number]
    times = inputs.metrics[number].times if number < len(inputs.metrics) else ()
    firsts = [int(np.searchsorted(times, start + SAMPLE_SECONDS)) for start in inputs.stage.starts]
    processes = processes_of(firsts, inputs.stage.planned)
    since = [seen.minutes.cut(first) for first in processes.firsts.tolist()]
    scores = np.array([z_beyond(one, tolerated_of(limit), _sign_of(limit), seen.wander) for one in since])
    counts = np.array([max(len(one.champion), 1) for one in since], np.float64)
    found = [
        processes.together(half_normal_log_evidence(scores, counts, alpha))
        for alpha in (exp(-log_needed), inputs.policy.across_entities_alpha)
    ]
    return Keys(found[0], log_needed, found[1])


def _comparison(seen: _Seen) -> Comparison:
    """Return the means and their ratio, with bounds that hold at all looks together."""
    if not len(seen.minutes.champion) or seen.unreadable:
        return _NOTHING
    champion, challenger = (float(side.mean()) for side in seen.minutes)
    if champion <= 0:
        return Comparison(champion, challenger, None, None, None)
    ratio = challenger / champion
    error = ratio_error(seen.minutes, ratio, seen.wander)
    if error is None:
        return Comparison(champion, challenger, ratio, None, None)
    radius = mixture_radius(float(len(seen.minutes.champion)), INTERVAL_ALPHA) * error
    return Comparison(champion, challenger, ratio, max(0.0, ratio - radius), ratio + radius)
