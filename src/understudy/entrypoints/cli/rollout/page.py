"""A rollout as a page: the verdict, its checks, their charts, steps and the story."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from understudy import __version__
from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.canary.outcomes.held_outcomes import HeldOutcome
from understudy.core.canary.slices.slice_figures import SliceRow
from understudy.core.rollout.state import Phase, RolloutState
from understudy.entrypoints.charts import report
from understudy.entrypoints.charts.frame import Chart
from understudy.entrypoints.cli.rollout.charts import charts_of
from understudy.entrypoints.cli.rollout.checks_text import check_cells, check_change_words, limit_words, side_titles
from understudy.entrypoints.cli.rollout.slices_text import (
    MAX_ROWS,
    SIDES,
    more_slices,
    slice_cells,
    slice_state_words,
)
from understudy.entrypoints.cli.rollout.status import judge_lines, sentence_of
from understudy.entrypoints.cli.rollout.text import ladder_cells, phase_word
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.rollout.history import RolloutHistory
from understudy.rollout.status import RolloutStatus, evidence_of, held_outcomes_of
from understudy.rollout.verdicts.verdict_event import ACTOR as MONITOR

_MARKS_OF_PHASES: Mapping[str, str] = {
    Phase.FAILED: "✖",
    Phase.WAITING: "!",
    Phase.PROMOTING: "✔",
    Phase.SUCCEEDED: "✔",
}
_TONES = {"green": "good", "bold red": "bad", "yellow": "wait"}
"""Of a check, by the colour that its words have in a terminal."""
_TONES_OF_PHASES: Mapping[Phase, str] = {Phase.FAILED: "bad", Phase.WAITING: "wait", Phase.SUCCEEDED: "good"}


def rollout_page(status: RolloutStatus, history: RolloutHistory, notes: Sequence[str] = ()) -> str:
    """Return the whole page; what is not known is left out, and said. ``notes`` are what the log adds."""
    view, state = status.view, status.view.record.state
    shown = status._replace(requests=history.requests)
    title = f"{state.model_name}: {state.champion} → {state.challenger} · {phase_word(state)}"
    drawn = charts_of(view, history, status.events)
    parts: list[str | Chart] = []
    if rows := evidence_of(status):
        parts.append(_checks(rows, side_titles(status)))
        parts += [report.remark(line.plain) for line in judge_lines(status)]
    if outcomes := held_outcomes_of(status):
        parts.append(_held_outcomes(outcomes))
    if history.slices:
        parts.append(_slices(history.slices))
    parts += drawn.charts
    steps = [(share.strip(), f"{mark} {words}") for share, mark, words in ladder_cells(shown)]
    parts.append(report.story("Steps", steps))
    parts.append(report.story("What happened", _told(status.events, state)))
    verdict = [sentence_of(status), *notes, *drawn.remarks]
    return report.page(
        title, verdict, parts, _note(status), "" if state.is_ended_guard else _TONES_OF_PHASES.get(state.phase, "")
    )


def _note(status: RolloutStatus) -> str:
    """Return what the figures are, who started the rollout, and when the page was written."""
    view = status.view
    reason = f' because "{view.record.reason}"' if view.record.reason else ""
    written = datetime.fromtimestamp(view.read_at, UTC)
    return (
        f"{view.record.state.kind.capitalize()} {view.record.id}, started by {view.record.started_by}{reason}. "
        "Intervals hold at all looks together with 95 %; slow answers are the champion's above its 95th percentile, "
        "and the challenger's above 1.2 times that. "
        f"Understudy {__version__}, {written:%Y-%m-%d %H:%M}; times are in UTC."
    )


def _checks(rows: Sequence[Evidence], sides: tuple[str, str]) -> str:
    head = ["check", "verdict", *sides, "change (95 %)", "limit", "evidence / enough"]
    cells, tones = [], []
    for row in rows:
        name, *figures = check_cells(row)
        words = check_state_words(row)
        cells.append([name, " ".join(words.plain.split()), *figures])
        tones.append(_TONES.get(str(words.style), ""))
    return report.table(head, cells, tones)


def _held_outcomes(outcomes: Sequence[HeldOutcome]) -> str:
    """Return the outcomes that each step waits for, and how far they are; both sides' means are among the checks."""
    head = ["outcome", "verdict", "change (95 %)", "to be shown", "entities"]
    cells = []
    for one in outcomes:
        bound = f"{'≤' if (one.row.limit or 0.0) > 1 else '≥'} {limit_words(one.row)}"
        asked = "" if one.asked is None else f" of about {one.asked:,}"
        entities = f"{one.entities[0]:,} → {one.entities[1]:,}{asked}"
        cells.append([one.limit.name, _shown_words(one.row), check_change_words(one.row), bound, entities])
    remark = report.remark(
        "entities that count so far, of about as many of the challenger's as it takes to show an equal version"
    )
    return report.heading(f"Outcomes that hold each step, {SIDES}") + report.table(head, cells) + remark


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
    return report.heading(f"Slices, {SIDES}") + report.table(head, cells) + (report.remark(more) if more else "")


def _told(events: Sequence[RolloutEventRecord], state: RolloutState) -> list[tuple[str, str]]:
    """Return what happened and when; the first event of a phase has its mark, but the end of a guard has none."""
    lines, phase = [], ""
    for event in events:
        is_end = state.is_ended_guard and event.phase == Phase.SUCCEEDED
        mark = "" if is_end or event.phase == phase else _MARKS_OF_PHASES.get(event.phase, "")
        by = "" if event.actor == MONITOR else f" ({event.actor})"
        when = f"{datetime.fromtimestamp(event.at, UTC):%m-%d %H:%M:%S}"
        lines.append((when, f"{mark} {event.reason}{by}".strip()))
        phase = event.phase
    return lines
