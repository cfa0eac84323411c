"""A rollout's history from its windows: past decisions made once more, its calls, distributions of scores.

A verdict is a function of the windows that had ended, so every past decision can be made once more: the pictures of
a rollout show what the monitor saw, and not what a second way of counting would have made of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from understudy.core.canary.analysis import judge
from understudy.core.canary.decision import Check, Decision, Evidence
from understudy.core.canary.evidence.check_input import Metrics
from understudy.core.canary.judgement_records import NO_JUDGEMENTS, Judgements
from understudy.core.canary.limits import CanaryPolicy, Stage
from understudy.core.routing.policy import Role
from understudy.core.windows.histogram import Histogram, merged, value_of
from understudy.core.windows.strata import Strata
from understudy.core.windows.window import WINDOW_SECONDS, Window

MAX_DECISIONS = 60
"""Points of a chart: more cannot be told apart, and each costs an analysis."""
SCORE_CELLS = 40
OUTER_RATIO = 0.001
"""Share of the scores on either side that the chart's outer cells hold, wherever they are."""


class Course(NamedTuple):
    """The way of a rollout as far as the analysis went with it."""

    stage: Stage
    """At the end of the way."""
    limits: Sequence[CanaryPolicy]
    """Of each stage that began."""
    weights_percent: Sequence[float]
    """Of each stage that began."""
    metrics: Metrics = ()
    """Of an operator's own, up to the end of the way."""
    judgements: Judgements = NO_JUDGEMENTS
    """Of its judge, likewise."""


class DecisionAt(NamedTuple):
    """A decision, and when it was (or would have been) made, in seconds since the epoch."""

    at: float
    decision: Decision


class CallsUntil(NamedTuple):
    """Calls of both sides that were compared up to a moment, since the one before it."""

    at: float
    champion: int
    challenger: int


class LeftOut(NamedTuple):
    """Calls whose callers gave them little time; both are in no error rate that a version is judged by."""

    hurried_calls: int = 0
    """Left out whatever came of them: the deadline was too short."""
    expired_calls: int = 0
    """Ended at a deadline that was long enough: slow answers."""


class ScoreDistributions(NamedTuple):
    """How many scores of each side are in each cell; ``edges`` are one more than cells."""

    edges: Sequence[float]
    champion: Sequence[int]
    challenger: Sequence[int]


def moments_between(first: float, last: float, most: int = MAX_DECISIONS) -> list[float]:
    """Return at most so many moments at equal distances, a window apart at least; ``last`` is always one."""
    count = min(most - 1, int((last - first) // WINDOW_SECONDS))
    return [*(first + (last - first) * number / (count or 1) for number in range(count)), last]


def latest_moments(now: float, count: int, since: float) -> list[float]:
    """Return the last moments at which a window more had ended, oldest first, ``now`` included; none before ``since``.

    They are the same ones until the next window ends, but for ``now``.
    """
    newest = int(now // WINDOW_SECONDS) * WINDOW_SECONDS
    ends = (float(newest - WINDOW_SECONDS * number) for number in range(count - 2, -1, -1))
    return [*(end for end in ends if since < end < now), now]


def stage_at(course: Course, moment: float) -> tuple[CanaryPolicy, Stage]:
    """Return the limits and the stage of a decision at a moment; a stage begins after its own first moment."""
    begun = max(1, sum(start < moment for start in course.stage.starts))
    stage = replace(course.stage, starts=course.stage.starts[:begun], weight_percent=course.weights_percent[begun - 1])
    return course.limits[begun - 1], stage


def decisions_at(strata: Strata, course: Course, moments: Sequence[float]) -> list[DecisionAt]:
    """Return what the analysis says at each moment, of the windows that had ended by then."""

    def decision_at(moment: float) -> Decision:
        limits, stage = stage_at(course, moment)
        return judge(strata, limits, stage, moment, metrics=course.metrics, judgements=course.judgements)

    return [DecisionAt(moment, decision_at(moment)) for moment in moments]


def rows_of(decisions: Sequence[DecisionAt], check: Check) -> list[tuple[float, Evidence]]:
    """Return one check over time; decisions without it are left out."""
    return [(one.at, row) for one in decisions for row in one.decision.evidence if row.check is check]


def requests_by_stage(strata: Strata, starts: Sequence[float], until: float = inf) -> list[int]:
    """Return how many calls of the challenger's were judged in each stage of a rollout that began.

    A window that had not ended ``until`` then is not judged yet, whatever has come of it.
    """
    strata = strata.until(until)
    borders = [*(strata.first_at(start) for start in starts), len(strata.starts)]
    calls = strata.challenger["calls"]
    return [int(calls[first:end].sum()) for first, end in pairwise(borders)]


def calls_until(strata: Strata, moments: Sequence[float]) -> list[CallsUntil]:
    """Return the calls of both sides between each two moments, in the windows that had ended by the later one."""
    borders = [strata.first_at(moment) for moment in moments]
    champion, challenger = strata.champion["calls"], strata.challenger["calls"]
    return [
        CallsUntil(moment, int(champion[first:end].sum()), int(challenger[first:end].sum()))
        for moment, first, end in zip(moments, [0, *borders], borders, strict=False)
    ]


def calls_left_out(strata: Strata) -> dict[Role, LeftOut]:
    """Return the calls of a rollout's history that callers' deadlines took away of what each role is judged by."""
    sides = {Role.CHAMPION: strata.champion, Role.CHALLENGER: strata.challenger}
    return {role: LeftOut(int(s["hurried_calls"].sum()), int(s["expired_calls"].sum())) for role, s in sides.items()}


def scores_by_role(windows: Iterable[Window]) -> dict[Role, Histogram]:
    """Return all scores of champion and challenger."""
    found: dict[Role, list[Histogram]] = {Role.CHAMPION: [], Role.CHALLENGER: []}
    for window in windows:
        if window.key.role in found:
            found[window.key.role].append(window.scores)
    return {role: merged(scores) for role, scores in found.items()}


def score_distributions(scores: Mapping[Role, Histogram]) -> ScoreDistributions | None:
    """Return the scores of champion and challenger in common cells of equal width; ``None`` if a side has none."""
    champion, challenger = scores[Role.CHAMPION], scores[Role.CHALLENGER]
    if not (champion.counts and challenger.counts):
        return None
    both = merged((champion, challenger))
    low, high = (both.quantile(share) or 0.0 for share in (OUTER_RATIO, 1 - OUTER_RATIO))
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    edges = np.linspace(low, max(high, low + 1e-9), SCORE_CELLS + 1).tolist()
    return ScoreDistributions(edges, *(_cells(side, edges) for side in (champion, challenger)))


def past_calls_per_second(windows: Sequence[Window], since: float, until: float) -> dict[Role, float]:
    """Return how many calls a second each role got in the windows between two past moments, cache hits included."""
    found = {Role.CHAMPION: 0, Role.CHALLENGER: 0}
    for window in windows:
        if window.key.role in found and since <= window.key.start and window.key.start + WINDOW_SECONDS <= until:
            found[window.key.role] += window.volume
    return {role: volume / (until - since) for role, volume in found.items()}


def _cells(histogram: Histogram, edges: Sequence[float]) -> list[int]:
    counts = np.zeros(len(edges) - 1, np.int64)
    for cell, count in histogram.counts.items():
        place = int(np.searchsorted(edges, value_of(cell), side="right")) - 1
        counts[min(max(place, 0), len(counts) - 1)] += count
    return [int(count) for count in counts]
