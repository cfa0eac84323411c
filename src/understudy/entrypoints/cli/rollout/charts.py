"""A rollout's charts: shares, both sides of each check, the change beside its limit, the evidence, scores."""

from collections.abc import Sequence
from math import isfinite
from typing import NamedTuple

from understudy.core.canary.checks import CHECKS
from understudy.core.canary.decision import Check, Evidence, Unit
from understudy.core.canary.messages import evidence_words
from understudy.core.canary.scores.score_agreement import pairs_from_json
from understudy.core.rollout.history import rows_of
from understudy.core.rollout.state import Phase, RolloutState
from understudy.entrypoints.charts.distributions import Distribution, distributions, pairs_of_values
from understudy.entrypoints.charts.frame import Chart, Mark, Point, Tone
from understudy.entrypoints.charts.over_time import Line, Times, course_over_time, lines_over_time
from understudy.entrypoints.cli.rollout.checks_text import check_cells, limit_words
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.entrypoints.cli.shared.times import time_axis_marks
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutView
from understudy.rollout.history import RolloutHistory
from understudy.rollout.warm_up.warm_up_verdict import agreement_of

_DRAWN = tuple(spec.check for spec in CHECKS if spec.check.is_drawn)
_MIN_POINTS = 2
"""A chart of one dot says less than the row of the check."""
_RATIO_SPAN = (0.5, 2.0)
"""What a chart of a ratio shows at least, and how far it goes at most."""
_WIDEST_RATIO_SPAN = (0.02, 1_000.0)
_EVIDENCE_SPAN = (1e-3, 1e5)
_MOST_EVIDENCE = 1e12
"""What lies beyond it is drawn at the edge."""
_TELLING_RATIO = 1 / 3
"""Share of the decisions, the newest ones, whose whole interval is shown: the first ones know nothing yet."""
_UNITS = {Unit.RATE: (100.0, "%"), Unit.SECONDS: (1_000.0, "ms")}


class RolloutCharts(NamedTuple):
    """What is drawn of a rollout."""

    charts: tuple[Chart, ...]
    remarks: tuple[str, ...]
    """What the charts rest on where it is not the windows, and why something is not drawn."""


class _Course(NamedTuple):
    """What the charts of one check have in common."""

    state: RolloutState
    check: Check
    rows: Sequence[tuple[float, Evidence]]
    times: Times
    moments: Sequence[Mark]


def charts_of(view: RolloutView, history: RolloutHistory, events: Sequence[RolloutEventRecord]) -> RolloutCharts:
    """Return the charts of a rollout; what is not known is left out, and said."""
    state = view.record.state
    courses = [_course(history, check, state) for check in _DRAWN if rows_of(history.decisions, check)]
    drawn = [course for course in courses if len(course.rows) >= _MIN_POINTS]
    found = [*_shares(history, state), *(chart for course in drawn for chart in _pictures(course))]
    if history.scores is not None:
        arms = [
            Distribution(f"champion {state.champion}", Tone.CHAMPION, history.scores.champion),
            Distribution(f"challenger {state.challenger}", Tone.CHALLENGER, history.scores.challenger),
        ]
        found.append(distributions("scores of the calls", arms, history.scores.edges))
    found += _compared_scores(events, state)
    return RolloutCharts(tuple(found), tuple(_remarks(history, state, courses, drawn)))


def _remarks(
    history: RolloutHistory, state: RolloutState, courses: Sequence[_Course], drawn: Sequence[_Course]
) -> list[str]:
    if history.windows_are_gone:
        return ["Its windows were deleted since: the pictures show what the last stored verdict rested on."]
    if courses and not drawn:
        return ["The checks were looked at once only: nothing is drawn over time, and the table has their figures."]
    if history.decisions or not state.step_starts:
        return []
    why = "nothing was compared, the plan's rule knows no evidence, or what it rested on was deleted for its age"
    return [f"There are no pictures of the checks: {why}."]


def _shares(history: RolloutHistory, state: RolloutState) -> list[Chart]:
    """Return the challenger's share of the calls beside the plan's, between each two decisions."""
    seen = [(at, 100 * own / (own + other)) for at, other, own in history.calls if own + other]
    if len(seen) < _MIN_POINTS:
        return []
    first, last = seen[0][0], seen[-1][0]
    silent = [at for at, other, own in history.calls if not own + other and first < at < last]
    starts = zip(state.step_starts, state.plan.steps, strict=False)
    planned = [(max(start, first), float(step.weight_percent)) for start, step in starts if start < last]
    sentence = (
        f"Challenger {state.challenger} got {seen[-1][1]:.1f} % of the calls that were compared last; "
        f"by the plan {planned[-1][1]:g} %.{' Where the line is broken there were no calls.' if silent else ''}"
    )
    lines = [
        Line("by the plan", Tone.CHAMPION, list(dict(planned).items()), is_stepped=True),
        Line(f"observed, {state.challenger}", Tone.CHALLENGER, seen, breaks=silent),
    ]
    return [lines_over_time("share of the challenger", sentence, lines, time_axis_marks(first, last), unit="%")]


def _course(history: RolloutHistory, check: Check, state: RolloutState) -> _Course:
    rows = rows_of(history.decisions, check)
    first, last = rows[0][0], rows[-1][0]
    return _Course(state, check, rows, time_axis_marks(first, last), [*_steps(state, first, last), *_end(state, last)])


def _pictures(course: _Course) -> list[Chart]:
    """Return both sides of a check, its change, and its evidence, as far as there are figures."""
    return [*_sides(course), *_change(course), *_evidence(course)]


def _sides(course: _Course) -> list[Chart]:
    """Return both sides' values over time, each of the rollout so far."""
    scale, unit = _UNITS.get(course.check.unit, (1.0, ""))
    state, (_, last) = course.state, course.rows[-1]
    sides = [
        (f"champion {state.champion}", Tone.CHAMPION, [(at, row.champion) for at, row in course.rows]),
        (f"challenger {state.challenger}", Tone.CHALLENGER, [(at, row.challenger) for at, row in course.rows]),
    ]
    known = [
        (label, tone, [(at, scale * value) for at, value in line if value is not None]) for label, tone, line in sides
    ]
    if not unit or any(len(line) < _MIN_POINTS for _, _, line in known):
        return []
    name, champion, challenger, *_ = check_cells(last)
    sentence = f"{name} of the rollout so far: champion {champion}, challenger {challenger}."
    moments = [moment.value for moment in course.moments]
    lines = [Line(*one) for one in known]
    return [lines_over_time(f"{name}: both versions", sentence, lines, course.times, unit=unit, moments=moments)]


def _change(course: _Course) -> list[Chart]:
    points = [Point(at, row.change, *_whisker(row, row.change)) for at, row in course.rows if row.change is not None]
    check, last = course.check, course.rows[-1][1]
    if len(points) < _MIN_POINTS or last.limit is None:
        return []
    limit, sentence = f"limit {limit_words(last)}", _change_sentence(last)
    if check.is_in_deviations:
        chart = course_over_time(
            f"{check.title}: challenger − champion, in standard deviations",  # noqa: RUF001  # a minus
            sentence,
            points,
            course.times,
            span=_shift_span(points, last.limit),
            levels=[Mark(last.limit, limit), Mark(-last.limit, "")],
            moments=course.moments,
            is_logarithmic=False,
        )
        return [chart]
    chart = course_over_time(
        f"{check.title}: challenger / champion",
        sentence,
        points,
        course.times,
        span=_ratio_span(points, last.limit),
        levels=[Mark(last.limit, limit)],
        moments=course.moments,
        is_logarithmic=True,
    )
    return [chart]


def _change_sentence(row: Evidence) -> str:
    """Return a check's change, with the interval of its row in the table."""
    name, champion, challenger, change, limit, _ = check_cells(row)
    word = " ".join(check_state_words(row).plain.split()[1:])
    return f"{name}: challenger {challenger} beside champion {champion}, change {change}, limit {limit}: {word}."


def _whisker(row: Evidence, change: float) -> tuple[float, float]:
    """Return an interval's ends; figures of chosen windows have none."""
    if row.since is not None:
        return change, change
    return -float("inf") if row.change_low is None else row.change_low, _or_infinity(row.change_high)


def _evidence(course: _Course) -> list[Chart]:
    points = [
        Point(at, row.evidence, row.evidence, row.evidence) for at, row in course.rows if row.evidence is not None
    ]
    last = course.rows[-1][1]
    needed = last.evidence_needed
    if len(points) < _MIN_POINTS or needed is None:
        return []
    low, high = _EVIDENCE_SPAN
    values = [point.value for point in points if isfinite(point.value)]
    span = (max(low, min([0.1, *values])), min(max([high, 10 * needed, *values]), _MOST_EVIDENCE))
    found = evidence_words(last.evidence or 0.0, needed)
    mark = Mark(needed, f"fails from {needed:,.0f} on, if other entities say the same")
    chart = course_over_time(
        f"{course.check.title}: evidence that it is worse than its limit",
        f"{course.check.title}: evidence {found}, if other entities say the same.",
        points,
        course.times,
        span=span,
        levels=[mark],
        moments=course.moments,
        is_logarithmic=True,
    )
    return [chart]


def _steps(state: RolloutState, first: float, last: float) -> list[Mark]:
    """Return when the weight changed."""
    starts = zip(state.step_starts, state.plan.steps, strict=False)
    return [Mark(max(start, first), f"{step.weight_percent} %") for start, step in starts if start < last]


def _end(state: RolloutState, last: float) -> list[Mark]:
    if state.phase is Phase.FAILED and state.promoted_at is None:
        return [Mark(last, "ended")]
    return [] if state.promoted_at is None else [Mark(last, "champion")]


def _ratio_span(points: Sequence[Point], limit: float) -> tuple[float, float]:
    """Return what a chart shows: all values, the later intervals, and the limit."""
    telling = points[-max(1, round(_TELLING_RATIO * len(points))) :]
    values = [point.value for point in points] + [bound for point in telling for bound in (point.low, point.high)]
    used = [value for value in (*values, limit, *_RATIO_SPAN) if isfinite(value) and value > 0]
    return max(min(used) / 1.2, _WIDEST_RATIO_SPAN[0]), min(max(used) * 1.2, _WIDEST_RATIO_SPAN[1])


def _shift_span(points: Sequence[Point], limit: float) -> tuple[float, float]:
    telling = points[-max(1, round(_TELLING_RATIO * len(points))) :]
    values = [point.value for point in points] + [bound for point in telling for bound in (point.low, point.high)]
    furthest = 1.2 * max(abs(value) for value in (*values, limit) if isfinite(value))
    return -furthest, furthest


def _or_infinity(bound: float | None) -> float:
    return float("inf") if bound is None else bound


def _compared_scores(events: Sequence[RolloutEventRecord], state: RolloutState) -> list[Chart]:
    """Return the pairs of scores that the newest verdict of a warm-up rests on, if there are any that can be read."""
    stored = next((found for event in reversed(events) if (found := agreement_of(event)) is not None), None)
    try:
        pairs = None if stored is None else pairs_from_json(stored)
    except (LookupError, TypeError, ValueError):  # damaged, which judging it again reports
        return []
    if pairs is None or not pairs.champion:
        return []
    title = f"scores of the same calls before the first share: {state.champion} to the right, {state.challenger} up"
    both = list(zip(pairs.champion, pairs.challenger, strict=True))
    return [pairs_of_values(title, both, (state.champion, state.challenger))]
