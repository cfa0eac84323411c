"""The rollout page: the sentence that is the answer, the evidence under it, what happens next, who changed what."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from understudy.core.canary.decision import Evidence, Verdict
from understudy.core.durations import moment
from understudy.core.rollout.state import CommandKind, Kind, Phase, RolloutState
from understudy.entrypoints.cli.rollout.checks_text import check_cells, side_titles
from understudy.entrypoints.cli.rollout.status import (
    Share,
    commands_of,
    heading,
    is_unwatched,
    judge_lines,
    left_out_lines,
    place_words,
    sentence_of,
    shares_of,
)
from understudy.entrypoints.cli.rollout.text import ENDED, by_hand_lines, ladder_cells, phase_word
from understudy.entrypoints.cli.rollout.warm_up_text import is_warm_up_overdue
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.entrypoints.cli.shared.texts.rollback_text import nothing_words, restore_commands, rollback_command
from understudy.entrypoints.console.views.changes import ChangeRow, champion_change, change_row
from understudy.entrypoints.console.views.confirmations.rollout_acts import command_line, command_words
from understudy.entrypoints.console.views.links import ROLL_BACK, act_path, rollout_path
from understudy.entrypoints.console.views.next_step import back_words, missing_lines, next_words
from understudy.entrypoints.console.views.tone import NOTHING, OF_PHASE, Tone, tone_of_check
from understudy.lifecycle.rollback_moves import hidden_rollback, newest_words
from understudy.ports.registry.registry import AuditEntry
from understudy.ports.rollout.rollout_store import RollbackRecord, RolloutEventRecord
from understudy.rollout.status import RolloutStatus, evidence_of
from understudy.rollout.verdicts.verdict_event import ACTOR

MAX_EVENTS, MAX_CHANGES = 40, 15
NOT_KNOWN = ("…", "not known now", Tone.CALM)
"""What stands in the place of a pass that no monitor vouches for at this moment."""
_PASSED, _TO_COME, _LEFT = "✔", "○", "→"
_FIRST = (Tone.BAD, Tone.WAIT)
_STEP_TONES = {_PASSED: Tone.GOOD, "✖": Tone.BAD, "●": Tone.HERE, _TO_COME: Tone.CALM, ENDED: Tone.CALM}
_STEP_WORDS = {_PASSED: "passed", "✖": "failed", "●": "now", _TO_COME: "to come", ENDED: "ended"}


class RolloutSeen(NamedTuple):
    """What was read of a rollout."""

    status: RolloutStatus
    by_hand: AuditEntry | None
    """The change that ended it by hand."""
    audit: Sequence[AuditEntry]
    """The newest changes of the model's policy, newest first."""
    labels: Mapping[int, str]
    """Of the model's versions, by their ids."""
    recent: Sequence[int] = ()
    """The model's newest rollouts, newest first."""
    tried: RollbackRecord | None = None
    """What a rollback would do at this moment, where its champion is retired; ``None``: not asked."""


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


class CheckRow(NamedTuple):
    """A check with both sides and its evidence."""

    name: str
    mark: str
    word: str
    tone: Tone
    champion: str
    challenger: str
    change: str
    limit: str
    evidence: str


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
    facts: tuple[str, ...]
    warnings: tuple[str, ...]
    earlier: str
    """That calls were taken back before it began, which is no trouble of this rollout; else empty."""
    is_overdue: bool
    """Whether its warm-up takes unusually long: the page leads to Health."""
    next_words: str
    next_lines: tuple[str, ...]
    """What it waits for."""
    back_words: str
    back_lines: tuple[str, ...]
    """The checks nearest to it."""
    shares: tuple[ShareRow, ...]
    left_out: tuple[str, ...]
    steps: tuple[StepRow, ...]
    sides: tuple[str, str]
    checks: tuple[CheckRow, ...]
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
    _, *about = heading(status)
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
        tuple(line.plain for line in about),
        (*_warnings(status), *(line.plain.strip() for line in by_hand_lines(seen.by_hand))),
        hidden_rollback(seen.audit, state, view.read_at, seen.labels),
        is_warm_up_overdue(state, view.read_at),
        next_words(status),
        missing_lines(status),
        *back_words(status, rows),
        tuple(_share(share) for share in shares_of(status)),
        tuple(line.plain.strip() for line in (*judge_lines(status), *left_out_lines(status))),
        tuple(_steps(status)),
        side_titles(status),
        tuple(sorted((_check(row, is_known=_is_known(status)) for row in rows), key=_urgency)),
        bool(rows) and status.decision is None,
        tuple(_event(event, state) for event in reversed(status.events[-MAX_EVENTS:])),
        tuple(change_row(entry, seen.labels) for entry in seen.audit[:MAX_CHANGES]),
        tuple(OtherLink(str(one), rollout_path(state.model_name, one), one == view.record.id) for one in seen.recent),
        is_newest,
        tuple(command.removeprefix("→ ") for command in commands_of(status)),
        tuple(_acts(state, view.record.id, has_way_back=not nothing)) if is_newest else (),
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


def _is_known(status: RolloutStatus) -> bool:
    """Whether what checks say holds now: they were judged at this look, and a monitor acts on it; or it is over."""
    is_of_now = status.decision is not None and not is_unwatched(status)
    return is_of_now or status.view.record.state.phase.is_final


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


def _check(row: Evidence, *, is_known: bool) -> CheckRow:
    name, champion, challenger, change, limit, evidence = check_cells(row)
    mark, _, word = " ".join(check_state_words(row).plain.split()).partition(" ")
    tone = tone_of_check(row)
    if tone is Tone.GOOD and not is_known:
        mark, word, tone = NOT_KNOWN
    return CheckRow(name, mark, word, tone, champion, challenger, change, limit, evidence)


def _urgency(row: CheckRow) -> int:
    """Return a check's place: what fails first, then what needs a look, and the others as the analysis has them."""
    return _FIRST.index(row.tone) if row.tone in _FIRST else len(_FIRST)


def _event(event: RolloutEventRecord, state: RolloutState) -> EventRow:
    verdict = "" if event.verdict is None else event.verdict.replace("_", " ")
    tone = OF_PHASE[Phase(event.phase)] if event.phase in tuple(Phase) else Tone.CALM
    if state.is_ended_guard and event.phase == Phase.SUCCEEDED:
        tone = Tone.CALM
    return EventRow(moment(event.at), verdict, tone, event.reason, event.actor)


def _acts(state: RolloutState, rollout_id: int, *, has_way_back: bool) -> list[ActLink]:
    """Return what a person may do, the rollback last; what the state machine would refuse is not offered."""
    names: list[tuple[CommandKind, str]] = []
    if state.kind is Kind.ROLLOUT and not state.phase.is_final:
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
    model = state.model_name
    links = [
        ActLink(
            label, act_path(model, act, rollout_id), act is CommandKind.ABORT, _act_words(act), command_line(act, model)
        )
        for act, label in names
    ]
    if not has_way_back:
        return links
    # Also of one that is over: what took its place may have to be taken back.
    back, is_urgent = act_path(model, ROLL_BACK, rollout_id), bool(state.step_starts) and not state.phase.is_final
    return [*links, ActLink("Roll back", back, is_urgent, _rollback_words(state), rollback_command(model))]


def _act_words(act: CommandKind) -> str:
    is_before_a_share = act is CommandKind.ABORT
    return "It ends before its first share; calls stay as they are." if is_before_a_share else command_words(act)


def _rollback_words(state: RolloutState) -> str:
    """Return what a rollback does: the database takes back a share, or what moved the champion last."""
    if state.phase.is_final:
        return "Takes back at once what moved calls last: a share, or a change of champion."
    if not state.step_starts:
        return f"Takes back a share of the calls, of which {state.challenger} has none yet: it changes nothing now."
    ends = " and the rollout ends" if state.kind is Kind.ROLLOUT else ""
    return f"{state.champion} answers every call again at once{ends}."
