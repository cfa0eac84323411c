"""Rollouts as people read them: a list of them, the steps of one, its end, and its verdicts judged again."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from understudy.core.canary.decision import Verdict
from understudy.core.durations import duration_words
from understudy.core.rollout.actions import PolicySeen
from understudy.core.rollout.plan import Step
from understudy.core.rollout.policy_share import policy_percent
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.core.rollout.state_machine import ABORTED, BY_HAND
from understudy.entrypoints.cli.shared.rendering import Column, a_table
from understudy.entrypoints.cli.shared.texts.waiting_text import awaited
from understudy.entrypoints.cli.shared.times import event_time, moment_words, time_of_day, when_words
from understudy.ports.registry.registry import AuditEntry
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutRecord, RolloutView, UnreadableRollout
from understudy.rollout.status import RolloutStatus
from understudy.rollout.verdicts.replay import Damage, Replay

STYLES = {Phase.FAILED: "bold red", Phase.WAITING: "bold yellow", Phase.SUCCEEDED: "bold green"}
ENDED = "–"  # noqa: RUF001 - a dash, which is no verdict
"""The mark of what ended without a verdict."""
_Row: TypeAlias = tuple[str | Text, ...]
_COLUMNS = (
    Column("id", right=True),
    Column("kind", drop=3),
    Column("model"),
    Column("versions"),
    Column("phase"),
    Column("share", right=True),
    Column("began", drop=1),
    Column("by", drop=2),
)
_VERDICTS = {
    Verdict.ADVANCE: ("✔", "green"),
    Verdict.ROLL_BACK: ("✖", "bold red"),
    Verdict.INVALID: ("✖", "bold yellow"),
    Verdict.HOLD: ("…", "dim"),
}


def listing(
    found: Sequence[RolloutRecord | UnreadableRollout], policies: Mapping[str, PolicySeen], *, utc: bool = False
) -> RenderableType:
    """Return rollouts as a table; ``policies`` are those of the models by their names."""
    if not found:
        return "No rollout was started yet. → understudy rollout start MODEL VERSION"
    rows = [
        _unreadable_row(one, utc=utc) if isinstance(one, UnreadableRollout) else _row(one, policies, utc=utc)
        for one in found
    ]
    unread = [Text(f"! {one.problem}", "bold red") for one in found if isinstance(one, UnreadableRollout)]
    return Group(a_table(_COLUMNS, rows), *unread) if unread else a_table(_COLUMNS, rows)


def _row(record: RolloutRecord, policies: Mapping[str, PolicySeen], *, utc: bool) -> _Row:
    state = record.state
    whom = awaited(state)
    return (
        str(record.id),
        state.kind,
        state.model_name,
        f"{state.champion} → {state.challenger}",
        Text(f"{state.phase} for {whom}" if whom else phase_word(state), phase_style(state)),
        share_words(state, policies.get(state.model_name)),
        when_words(datetime.fromtimestamp(state.started_at, UTC), utc=utc),
        record.started_by,
    )


def _unreadable_row(one: UnreadableRollout, *, utc: bool) -> _Row:
    began = when_words(datetime.fromtimestamp(one.started_at, UTC), utc=utc)
    phase = Text(f"{one.phase}, of a newer release", "bold red")
    return (str(one.id), one.kind, one.model_name, "?", phase, "?", began, one.started_by)


def phase_word(state: RolloutState) -> str:
    """Return a phase as people read it: a guard whose split was taken away has not succeeded in anything."""
    return "ENDED" if state.is_ended_guard else state.phase.value


def phase_style(state: RolloutState, otherwise: str = "") -> str:
    """Return the style of a phase's word."""
    return otherwise if state.is_ended_guard else STYLES.get(state.phase, otherwise)


def share_words(state: RolloutState, policy: PolicySeen | None) -> str:
    """Return the challenger's share: the plan's, and the policy's where an operator gave it another one."""
    planned, actual = f"{state.weight_percent} %", policy_percent(state, policy)
    return planned if actual in (None, state.weight_percent) else f"{actual} %, by the plan {planned}"


def rollout_words(view: RolloutView) -> str:
    """Return which rollout one is: its number, its model and its versions."""
    state = view.record.state
    return f"rollout {view.record.id} of {state.model_name}, {state.champion} → {state.challenger}"


class EndedBy(StrEnum):
    """What took a rollout back."""

    MONITOR = "monitor"
    ABORT = "abort"
    HAND = "hand"
    """A rollback by hand, or another change of the policy under it."""


def ended_by(view: RolloutView) -> EndedBy | None:
    """Return what took a rollout back; ``None`` of one that goes on, or has its challenger as champion."""
    state = view.record.state
    if state.phase is not Phase.FAILED:
        return None
    if state.reason.startswith(BY_HAND):
        return EndedBy.HAND
    return EndedBy.ABORT if state.reason.startswith(ABORTED) else EndedBy.MONITOR


def end_words(view: RolloutView) -> Text:
    """Return how a rollout stands, in one sentence."""
    state = view.record.state
    name = f"{state.model_name} {state.challenger}"
    if state.phase is Phase.FAILED:
        by = "taken back by the monitor: " if ended_by(view) is EndedBy.MONITOR else ""
        return Text("✖ ", "bold red").append(f"{name}: {by}{state.reason}")
    if state.is_ended_guard:
        return Text(f"{ENDED} ", "dim").append(f"the guard of {name} {ended_words(state)}")
    if state.kind is Kind.GUARD and state.phase is Phase.SUCCEEDED:
        return Text("✔ ", "bold green").append(f"the guard of {name} found nothing: {state.reason}")
    if state.phase in (Phase.SUCCEEDED, Phase.PROMOTING):
        return Text("✔ ", "bold green").append(f"{name} is champion in the place of {state.champion}")
    return Text("… ", "yellow").append(
        f"{name} is undecided at {share_words(state, view.policy)}: {state.reason or state.phase}"
    )


def ended_words(state: RolloutState) -> str:
    """Return why a guard ended without a verdict: the words that were stored begin with "over"."""
    return f"ended{state.reason.removeprefix('over')}; nothing was proven against {state.challenger}"


def by_hand_lines(entry: AuditEntry | None) -> list[Text]:
    """Return who rolled a rollout back by hand, when and why."""
    if entry is None:
        return []
    when = moment_words(entry.changed_at.timestamp())
    return [Text(f"  by {entry.actor}, {entry.via}, {when} UTC: {entry.reason or 'no reason was given'}")]


def replay_lines(
    replays: Sequence[tuple[RolloutEventRecord, Replay | Damage | None]], began_at: float | None
) -> list[RenderableType]:
    """Return what each stored verdict comes to judged again; its time is from ``began_at`` on, or in UTC."""
    found = [(event, replay) for event, replay in replays if replay is not None]
    if not found:
        return []
    return [
        Text("\nverdicts, judged again from what they rested on", "bold"),
        *(_replay_line(event, replay, began_at) for event, replay in found),
    ]


def _replay_line(event: RolloutEventRecord, replay: Replay | Damage, began_at: float | None) -> Text:
    line = Text(f"{event_time(event.at, began_at)} ", "dim")
    said = replay_words(event, replay)
    if isinstance(replay, Damage):
        return line.append(f"! {said}", "bold red")
    mark, style = _VERDICTS[event.verdict or Verdict.HOLD]
    line.append(f"{mark} ", style).append(f"{event.verdict}  ")
    return line.append(said, "dim" if replay.agrees else "bold red")


def replay_words(event: RolloutEventRecord, replay: Replay | Damage) -> str:
    """Return what a stored verdict comes to, judged again."""
    if isinstance(replay, Damage):
        return f"event {event.id} is damaged, and what rests on it is left out: {replay.problem}"
    return "the same verdict" if replay.agrees else f"now {replay.decision.sentence}"


def ladder_cells(status: RolloutStatus) -> list[tuple[str, str, str]]:
    """Return each step of a rollout: its share, its mark, and what it took or takes."""
    view, state = status.view, status.view.record.state
    now = view.record.finished_at or view.read_at
    at = len(state.step_starts) - 1
    here = ENDED if state.is_ended_guard else "✖" if state.phase is Phase.FAILED else "●"
    cells = []
    for index, step in enumerate(state.plan.steps[:1] if state.kind is Kind.GUARD else state.plan.steps):
        is_passed = state.phase is Phase.SUCCEEDED and not state.is_ended_guard
        is_over = index < at or (index == at and is_passed)
        mark = "✔" if is_over else here if index == at else "○"
        if index > at:
            words = _asked_words(state, step)
        else:
            until = state.step_starts[index + 1] if index < at else now
            words = _taken_words(status, index, until - state.step_starts[index])
            words += f"   passed {time_of_day(until)} UTC" if is_over and index < at else ""
        cells.append((f"{step.weight_percent:>3} %", mark, words))
    return cells


def _taken_words(status: RolloutStatus, index: int, seconds: float) -> str:
    step, state = status.view.record.state.plan.steps[index], status.view.record.state
    is_here = index == len(state.step_starts) - 1 and not state.phase.is_final and state.promoted_at is None
    words = duration_words(max(0.0, round(seconds)))
    if is_here and step.dwell_seconds:
        words = _with_asked(words, duration_words(step.dwell_seconds), is_enough=seconds >= step.dwell_seconds)
    if index >= len(status.requests):
        return words
    has, asked = status.requests[index], step.min_requests if is_here else 0
    if not asked:
        return f"{words}   {has:,} requests"
    return f"{words}   {_with_asked(f'{has:,}', f'{asked:,}', ' requests', is_enough=has >= asked)}"


def _with_asked(has: str, asked: str, unit: str = "", *, is_enough: bool) -> str:
    """Return ``917 of 2,000 requests``, or ``1,842 requests (400 asked)``: 1,842 of 400 would read as an error."""
    return f"{has}{unit} ({asked} asked)" if is_enough else f"{has} of {asked}{unit}"


def _asked_words(state: RolloutState, step: Step) -> str:
    if step is state.plan.steps[-1]:
        kept = duration_words(state.plan.keep_warm_seconds)
        return f"{state.challenger} becomes champion, {state.champion} is kept warm for {kept}"
    asked = [duration_words(step.dwell_seconds)] if step.dwell_seconds else []
    asked += [f"{step.min_requests:,} requests"] if step.min_requests else []
    return ", ".join(asked)
