"""The rollout page: the sentence that is the answer, the evidence under it, what happens next, who changed what."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.canary.decision import Evidence, Verdict
from understudy.core.durations import moment
from understudy.core.rollout.state import CommandKind, Kind, Phase, RolloutState
from understudy.entrypoints.cli.rollout.checks_text import side_titles
from understudy.entrypoints.cli.rollout.status import (
    Share,
    commands_of,
    is_held_by_scores,
    is_unwatched,
    judge_lines,
    left_out_lines,
    place_words,
    sentence_of,
    shares_of,
)
from understudy.entrypoints.cli.rollout.text import ENDED, by_hand_lines, ladder_cells, phase_word
from understudy.entrypoints.cli.rollout.warm_up_text import is_warm_up_overdue
from understudy.entrypoints.cli.shared.texts.rollback_text import nothing_words, restore_commands, rollback_command
from understudy.entrypoints.console.views.changes import (
    ChangeRow,
    champion_change,
    change_row,
)
from understudy.entrypoints.console.views.confirmations.rollout_acts import (
    EXPECTING_WORDS,
    command_line,
    command_words,
    resume_expecting_line,
)
from understudy.entrypoints.console.views.links import ROLL_BACK, act_path, resume_expecting_path, rollout_path
from understudy.entrypoints.console.views.rollouts.checks import CheckRow, check_rows, nothing_compared_words
from understudy.entrypoints.console.views.rollouts.glance import GlanceRow, glance_rows, has_share, rollback_words
from understudy.entrypoints.console.views.rollouts.seen import RolloutSeen
from understudy.entrypoints.console.views.tone import NOTHING, OF_PHASE, Tone, tone_of_check
from understudy.ports.rollout.rollout_store import RolloutEventRecord
from understudy.registry.rollback_moves import hidden_rollback, newest_words
from understudy.rollout.status import RolloutStatus, evidence_of
from understudy.rollout.verdicts.verdict_event import ACTOR

MAX_EVENTS, MAX_CHANGES = 40, 15
_PASSED, _TO_COME, _LEFT = "✔", "○", "→"
_STEP_TONES = {_PASSED: Tone.GOOD, "✖": Tone.BAD, "●": Tone.HERE, _TO_COME: Tone.CALM, ENDED: Tone.CALM}
_STEP_WORDS = {_PASSED: "passed", "✖": "failed", "●": "now", _TO_COME: "to come", ENDED: "ended"}


class ShareRow(NamedTuple):
    """A version that answers."""

    role: str
    version: str
    configured: str
    observed: str
    configured_percent: float
    observed_percent: float
    calls: str


class StepRow(NamedTuple):
    """A step of the plan."""

    share: str
    mark: str
    word: str
    tone: Tone
    text: str


class EventRow(NamedTuple):
    """One thing that happened."""

    at: str
    verdict: str
    tone: Tone
    text: str
    actor: str


class OtherLink(NamedTuple):
    """Another rollout of the model."""

    name: str
    href: str
    is_this: bool


class ActLink(NamedTuple):
    """What a person may do."""

    name: str
    href: str
    is_urgent: bool
    """Whether it is drawn as the way out."""
    what: str
    """What it does, in a sentence."""
    command: str
    """The one that does the same in a terminal."""


class RolloutPage(NamedTuple):
    """A rollout."""

    model: str
    title: str
    kind: str
    phase: str
    tone: Tone
    place: str
    sentence: str
    warnings: tuple[str, ...]
    earlier: str
    """That calls were taken back before it began, which is no trouble of this rollout; else empty."""
    is_overdue: bool
    """Whether its warm-up takes unusually long: the page leads to Health."""
    glance: tuple[GlanceRow, ...]
    """What is asked first, each answered in a sentence."""
    shares: tuple[ShareRow, ...]
    left_out: tuple[str, ...]
    steps: tuple[StepRow, ...]
    sides: tuple[str, str]
    checks: tuple[CheckRow, ...]
    no_checks: str
    """Why there are none; empty where there are."""
    is_stored: bool
    """Whether the checks are those of the last verdict that was stored, and not of this moment."""
    events: tuple[EventRow, ...]
    changes: tuple[ChangeRow, ...]
    others: tuple[OtherLink, ...]
    is_newest: bool
    commands: tuple[str, ...]
    acts: tuple[ActLink, ...]
    no_way_back: str
    """Why there is nothing to roll back; empty where a rollback is offered."""
    restoring: tuple[str, ...]
    """The commands that make a way back, in their order."""


def rollout_page(seen: RolloutSeen) -> RolloutPage:
    """Return the page; every figure is the one that the command line shows."""
    status = seen.status
    view, state = status.view, status.view.record.state
    rows = evidence_of(status)
    checks = check_rows(status, rows, is_old=seen.beside.is_old)
    is_newest = not seen.recent or seen.recent[0] == view.record.id
    overtaken = _overtaken(seen)
    nothing = f"There is {nothing_words(seen.tried)}." if seen.tried is not None and not seen.tried.changed else ""
    return RolloutPage(
        state.model_name,
        f"{state.model_name} {state.champion} → {state.challenger}",
        state.kind.value,
        phase_word(state),
        Tone.WAIT if overtaken else _tone(status, rows),
        _with_commas(place_words(view)),
        overtaken + sentence_of(status),
        (*_warnings(status), *(line.plain.strip() for line in by_hand_lines(seen.by_hand))),
        hidden_rollback(seen.audit, state, view.read_at, seen.labels),
        is_warm_up_overdue(state, view.read_at),
        glance_rows(seen, rows, checks, nothing),
        tuple(_share(share) for share in shares_of(status)),
        tuple(line.plain.strip() for line in (*judge_lines(status), *left_out_lines(status))),
        tuple(_steps(status)),
        side_titles(status),
        checks,
        "" if checks else nothing_compared_words(status),
        bool(rows) and status.decision is None,
        tuple(_event(event, state) for event in reversed(status.events[-MAX_EVENTS:])),
        tuple(change_row(entry, seen.labels) for entry in seen.audit[:MAX_CHANGES]),
        tuple(
            OtherLink(f"rollout {one}", rollout_path(state.model_name, one), one == view.record.id)
            for one in seen.recent
        ),
        is_newest,
        tuple(command.removeprefix("→ ") for command in commands_of(status)),
        tuple(_acts(status, has_way_back=not nothing)) if is_newest else (),
        nothing,
        () if not nothing or seen.tried is None else restore_commands(seen.tried),
    )


def _overtaken(seen: RolloutSeen) -> str:
    """Return who answers now where that is not what a rollout that is over left; empty where it is."""
    view = seen.status.view
    policy, state = view.policy, view.record.state
    if not state.phase.is_final or policy is None or policy.champion == state.policy.champion:
        return ""
    # A later change may have given it only a challenger.
    change = champion_change(seen.audit)
    by = "" if change is None else f" ({newest_words(change)})"
    return f"{policy.champion} answers now{by}. This rollout ended with: "


def _tone(status: RolloutStatus, rows: Sequence[Evidence]) -> Tone:
    """Return the page's tone: what a check found goes before the phase, and a silent monitor before a calm one."""
    state = status.view.record.state
    if state.has_failed_guard:
        return Tone.BAD
    if not state.phase.is_final and any(tone_of_check(row) is Tone.BAD for row in rows):
        return Tone.BAD
    tone = Tone.CALM if state.is_ended_guard else OF_PHASE[state.phase]
    is_unusual = is_warm_up_overdue(state, status.view.read_at) or _warnings(status)
    return Tone.WAIT if tone is Tone.CALM and is_unusual else tone


def _warnings(status: RolloutStatus) -> list[str]:
    view = status.view
    if view.record.state.phase.is_final:
        return []
    found = []
    if is_unwatched(status):
        found.append("No monitor looks at this rollout: no step is taken, and nothing is taken back by itself.")
    if not view.proxies:
        found.append("No live proxy reports to this database.")
    return found


def _share(share: Share) -> ShareRow:
    seen = share.seen_percent
    return ShareRow(
        share.role.value,
        share.version,
        f"{share.set_percent} %",
        NOTHING if seen is None else f"{seen:.1f} %",
        float(share.set_percent),
        0.0 if seen is None else round(seen, 2),
        share.calls,
    )


def _steps(status: RolloutStatus) -> list[StepRow]:
    """Return the steps; one that was left without an ADVANCE has no mark of a pass."""
    state = status.view.record.state
    left_by: dict[int, RolloutEventRecord] = {}
    for event in status.events:
        left_by.setdefault(event.step - 1, event)
    last = len(state.plan.steps) - 1
    return [
        _step(share, mark, text, state, None if index == last else left_by.get(index))
        for index, (share, mark, text) in enumerate(ladder_cells(status))
    ]


def _step(share: str, mark: str, text: str, state: RolloutState, left_by: RolloutEventRecord | None) -> StepRow:
    if mark == _PASSED and left_by is not None and left_by.verdict is not Verdict.ADVANCE:
        word, tone = ("time is over", Tone.CALM) if left_by.actor == ACTOR else ("taken by hand", Tone.WAIT)
        return StepRow(share.strip(), _LEFT, word, tone, _with_commas(text))
    is_missed = state.phase.is_final and mark == _TO_COME
    word = "not reached" if is_missed else _STEP_WORDS[mark]
    return StepRow(share.strip(), mark, word, _STEP_TONES[mark], _with_commas(text))


def _with_commas(text: str) -> str:
    """Return words that a terminal sets apart by spaces."""
    return ", ".join(part.strip() for part in text.split("   ") if part.strip())


def _event(event: RolloutEventRecord, state: RolloutState) -> EventRow:
    verdict = "" if event.verdict is None else event.verdict.replace("_", " ")
    tone = OF_PHASE[Phase(event.phase)] if event.phase in tuple(Phase) else Tone.CALM
    if state.is_ended_guard and event.phase == Phase.SUCCEEDED:
        tone = Tone.CALM
    return EventRow(moment(event.at), verdict, tone, event.reason, event.actor)


def _acts(status: RolloutStatus, *, has_way_back: bool) -> list[ActLink]:
    """Return what a person may do, the rollback last; what the state machine would refuse is not offered."""
    state, rollout_id = status.view.record.state, status.view.record.id
    model = state.model_name
    links = []
    for act, label in _commands(state):
        is_urgent, line = act is CommandKind.ABORT, command_line(act, model)
        links.append(ActLink(label, act_path(model, act, rollout_id), is_urgent, _act_words(act), line))
        if act is CommandKind.RESUME and is_held_by_scores(status):
            meant, line = resume_expecting_path(model, rollout_id), resume_expecting_line(model)
            links.append(ActLink("Resume, scores differ as meant", meant, False, EXPECTING_WORDS, line))
    if not has_way_back:
        return links
    # Also of one that is over: what took its place may have to be taken back.
    back, is_urgent = act_path(model, ROLL_BACK, rollout_id), has_share(status) and not state.phase.is_final
    return [*links, ActLink("Roll back", back, is_urgent, rollback_words(status), rollback_command(model))]


def _commands(state: RolloutState) -> list[tuple[CommandKind, str]]:
    """Return the commands that the state machine would carry out, as they are called."""
    names: list[tuple[CommandKind, str]] = []
    if state.kind is not Kind.ROLLOUT or state.phase.is_final:
        return names
    if state.is_at_gate:
        names.append((CommandKind.APPROVE, "Approve"))
        if state.gate is not None and state.gate.is_refused:
            names.append((CommandKind.RESUME, "Ask the gate again"))
        names.append((CommandKind.PAUSE, "Pause"))
    elif state.phase is Phase.WAITING:
        names.append((CommandKind.RESUME, "Resume"))
    elif state.promoted_at is None:
        names.append((CommandKind.PAUSE, "Pause"))
    if state.promoted_at is None and state.step_starts and not state.is_at_gate:
        names.append((CommandKind.PROMOTE, "Promote a step"))
    if not state.step_starts:
        names.append((CommandKind.ABORT, "Stop it"))
    return names


def _act_words(act: CommandKind) -> str:
    is_before_a_share = act is CommandKind.ABORT
    return "It ends before its first share; calls stay as they are." if is_before_a_share else command_words(act)
