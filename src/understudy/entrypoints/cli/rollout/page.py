"""A rollout as a page: the verdict, each check over time above its evidence, scores, checks, steps and the story."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite

from understudy import __version__
from understudy.core.canary.checks import CHECKS
from understudy.core.canary.decision import Check, CheckState, Evidence
from understudy.core.canary.outcomes.held_outcomes import HeldOutcome
from understudy.core.canary.scores.score_agreement import pairs_from_json
from understudy.core.canary.slices.slice_figures import SliceRow
from understudy.core.rollout.history import rows_of
from understudy.core.rollout.state import Phase, RolloutState
from understudy.entrypoints import charts
from understudy.entrypoints.charts import Distribution, Mark, Point, Tone
from understudy.entrypoints.cli.rollout.checks_text import check_cells, check_change_words, limit_words, side_titles
from understudy.entrypoints.cli.rollout.slices_text import (
    MAX_ROWS,
    SIDES,
    more_slices,
    slice_cells,
    slice_state_words,
)
from understudy.entrypoints.cli.rollout.status import sentence_of
from understudy.entrypoints.cli.rollout.text import ladder_cells
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.entrypoints.cli.shared.times import time_axis_marks
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.history import RolloutHistory
from understudy.rollout.status import RolloutStatus, evidence_of, held_outcomes_of
from understudy.rollout.verdicts.verdict_event import ACTOR as MONITOR
from understudy.rollout.warm_up.warm_up_verdict import agreement_of

_DRAWN = tuple(spec.check for spec in CHECKS if spec.check.is_drawn)
_RATIO_SPAN = (0.5, 2.0)
"""What a chart of a ratio shows at least, and how far it goes at most."""
_WIDEST_RATIO_SPAN = (0.02, 1_000.0)
_EVIDENCE_SPAN = (1e-3, 1e5)
_TELLING_RATIO = 1 / 3
"""Share of the decisions, the newest ones, whose whole interval is shown: the first ones know nothing yet."""
_MARKS_OF_PHASES: Mapping[str, str] = {
    Phase.FAILED: "✖",
    Phase.WAITING: "!",
    Phase.PROMOTING: "✔",
    Phase.SUCCEEDED: "✔",
}


def rollout_page(status: RolloutStatus, history: RolloutHistory) -> str:
    """Return the whole page; what is not known is left out, and said."""
    view, state = status.view, status.view.record.state
    shown = status._replace(requests=history.requests)
    title = f"{state.model_name}: {state.champion} → {state.challenger} · {state.phase}"
    parts = []
    if rows := evidence_of(status):
        parts.append(_checks(rows, state))
    if outcomes := held_outcomes_of(status):
        parts.append(_held_outcomes(outcomes))
    if history.slices:
        parts.append(_slices(history.slices))
    parts += [_pictures(history, check, state) for check in _DRAWN if rows_of(history.decisions, check)]
    if history.scores is not None:
        arms = [
            Distribution(f"champion {state.champion}", Tone.CHAMPION, history.scores.champion),
            Distribution(f"challenger {state.challenger}", Tone.CHALLENGER, history.scores.challenger),
        ]
        parts.append(charts.distributions("scores of the calls", arms, history.scores.edges))
    parts += _compared_scores(status.events, state)
    steps = [(share.strip(), f"{mark} {words}") for share, mark, words in ladder_cells(shown)]
    parts.append(charts.story("Steps", steps))
    parts.append(charts.story("What happened", _told(status.events)))
    reason = f' because "{view.record.reason}"' if view.record.reason else ""
    written = datetime.fromtimestamp(view.read_at, UTC)
    note = (
        f"{state.kind.capitalize()} {view.record.id}, started by {view.record.started_by}{reason}. "
        "Intervals hold at all looks together with 95 %; slow answers are the champion's above its 95th percentile, "
        "and the challenger's above 1.2 times that. "
        f"Understudy {__version__}, {written:%Y-%m-%d %H:%M}; times are in UTC."
    )
    return charts.page(title, [sentence_of(status), *_reservations(history, state)], parts, note)


def _compared_scores(events: Sequence[RolloutEventRecord], state: RolloutState) -> list[str]:
    """Return the pairs of scores that the newest verdict of a warm-up rests on, if there are any that can be read."""
    stored = next((found for event in reversed(events) if (found := agreement_of(event)) is not None), None)
    try:
        pairs = None if stored is None else pairs_from_json(stored)
    except (LookupError, TypeError, ValueError):  # damaged, which judging it again reports
        return []
    if pairs is None or not pairs.champion:
        return []
    title = f"scores of the same calls before the first share: {state.champion} to the right, {state.challenger} up"
    return [charts.pairs_of_values(title, list(zip(pairs.champion, pairs.challenger, strict=True)))]


def _reservations(history: RolloutHistory, state: RolloutState) -> list[str]:
    """Say what the pictures rest on where it is not the windows, and why there are none."""
    if history.windows_are_gone:
        return ["Its windows were deleted since: the pictures show what the last stored verdict rested on."]
    if history.decisions or not state.step_starts:
        return []
    why = "nothing was compared, the plan's rule knows no evidence, or what it rested on was deleted for its age"
    return [f"There are no pictures of the checks: {why}."]


def _checks(rows: Sequence[Evidence], state: RolloutState) -> str:
    champion, challenger = side_titles(state)
    head = ["check", "verdict", champion, challenger, "change (95 %)", "limit", "evidence"]
    cells = []
    for row in rows:
        name, *figures = check_cells(row)
        cells.append([name, " ".join(check_state_words(row).plain.split()), *figures])
    return charts.table(head, cells)


def _held_outcomes(outcomes: Sequence[HeldOutcome]) -> str:
    """Return the outcomes that each step waits for, and how far they are; both sides' means are among the checks."""
    head = ["outcome", "verdict", "change (95 %)", "to be shown", "entities"]
    cells = []
    for one in outcomes:
        bound = f"{'≤' if (one.row.limit or 0.0) > 1 else '≥'} {limit_words(one.row)}"
        asked = "" if one.asked is None else f" of about {one.asked:,}"
        entities = f"{one.entities[0]:,} → {one.entities[1]:,}{asked}"
        cells.append([one.limit.name, _shown_words(one.row), check_change_words(one.row), bound, entities])
    remark = charts.remark(
        "entities that count so far, of about as many of the challenger's as it takes to show an equal version"
    )
    return charts.heading(f"Outcomes that hold each step, {SIDES}") + charts.table(head, cells) + remark


def _shown_words(row: Evidence) -> str:
    words = {CheckState.OK: "✔ shown", CheckState.FAIL: "✖ fail"}
    return words.get(row.state, "… not shown yet")


def _slices(rows: Sequence[SliceRow]) -> str:
    """Return both sides' figures of each slice, and what is found of it."""
    head = ["slice", "verdict", "errors", "slow answers", "typical latency", "calls"]
    cells = []
    for row in rows[:MAX_ROWS]:
        name, calls, errors, slow, latency = slice_cells(row.figures)
        cells.append([name, slice_state_words(row.state), errors, slow, latency, calls])
    more = more_slices(rows)
    return charts.heading(f"Slices, {SIDES}") + charts.table(head, cells) + (charts.remark(more) if more else "")


def _pictures(history: RolloutHistory, check: Check, state: RolloutState) -> str:
    """Return a check's change over time above its evidence."""
    rows = rows_of(history.decisions, check)
    times = time_axis_marks(rows[0][0], rows[-1][0])
    moments = [*_steps(state, rows[0][0], rows[-1][0]), *_end(state, rows[-1][0])]
    drawn = [_change_picture(check, rows, times, moments), _evidence_picture(check, rows, times, moments)]
    return "".join(drawn)


def _change_picture(
    check: Check,
    rows: Sequence[tuple[float, Evidence]],
    times: Sequence[tuple[float, str]],
    moments: Sequence[Mark],
) -> str:
    points = [Point(at, row.change, *_whisker(row, row.change)) for at, row in rows if row.change is not None]
    name, last = check.title, rows[-1][1]
    if not points or last.limit is None:
        return charts.heading(f"{name}: nothing to compare yet")
    limit = f"limit {limit_words(last)}"
    if check.is_in_deviations:
        return charts.course_over_time(
            f"{name}: challenger − champion, in standard deviations",  # noqa: RUF001  # a minus
            points,
            times,
            span=_shift_span(points, last.limit),
            levels=[Mark(last.limit, limit), Mark(-last.limit, "")],
            moments=moments,
            is_logarithmic=False,
        )
    return charts.course_over_time(
        f"{name}: challenger / champion",
        points,
        times,
        span=_ratio_span(points, last.limit),
        levels=[Mark(last.limit, limit)],
        moments=moments,
        is_logarithmic=True,
    )


def _whisker(row: Evidence, change: float) -> tuple[float, float]:
    """Return an interval's ends; figures of chosen windows have none."""
    if row.since is not None:
        return change, change
    return -float("inf") if row.change_low is None else row.change_low, _or_infinity(row.change_high)


def _evidence_picture(
    check: Check,
    rows: Sequence[tuple[float, Evidence]],
    times: Sequence[tuple[float, str]],
    moments: Sequence[Mark],
) -> str:
    points = [Point(at, row.evidence, row.evidence, row.evidence) for at, row in rows if row.evidence is not None]
    needed = rows[-1][1].evidence_needed
    if not points or needed is None:
        return ""
    low, high = _EVIDENCE_SPAN
    span = (max(low, min(0.1, *(point.value for point in points))), max(high, 10 * needed))
    level = Mark(needed, f"fails from {needed:,.0f} on, if other entities say the same")
    title = f"{check.title}: evidence that it is worse than its limit"
    return charts.course_over_time(
        title, points, times, span=span, levels=[level], moments=moments, is_logarithmic=True
    )


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


def _told(events: Sequence[RolloutEventRecord]) -> list[tuple[str, str]]:
    """Return what happened and when; the first event of a phase has the phase's mark."""
    lines, phase = [], ""
    for event in events:
        mark = _MARKS_OF_PHASES.get(event.phase, "") if event.phase != phase else ""
        by = "" if event.actor == MONITOR else f" ({event.actor})"
        when = f"{datetime.fromtimestamp(event.at, UTC):%m-%d %H:%M:%S}"
        lines.append((when, f"{mark} {event.reason}{by}".strip()))
        phase = event.phase
    return lines
