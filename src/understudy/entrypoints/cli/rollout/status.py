"""A rollout on a terminal: the verdict first, the evidence under it, what happened, the next command last."""

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from shlex import quote
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from understudy.core.canary.decision import Decision, Verdict
from understudy.core.canary.judgements.judge_check import judge_words
from understudy.core.canary.post_promotion import LIMITS
from understudy.core.canary.scores.score_agreement import lack_inputs
from understudy.core.durations import duration_words
from understudy.core.rollout.gates import closed_gates
from understudy.core.rollout.state import GuardMode, Kind, Phase, RolloutState, WaitingFor
from understudy.core.routing.policy import Role
from understudy.core.routing.proxy_liveness import HIDDEN_WORDS, live_proxies_words, stale_proxies_words
from understudy.entrypoints.cli.rollout.checks_text import checks_table, side_titles
from understudy.entrypoints.cli.rollout.text import (
    ENDED,
    STYLES,
    ended_words,
    ladder_cells,
    phase_style,
    phase_word,
    share_words,
)
from understudy.entrypoints.cli.rollout.warm_up_text import warm_up_words
from understudy.entrypoints.cli.shared.rendering import data_console, facts
from understudy.entrypoints.cli.shared.texts.event_text import INDENT, event_text
from understudy.entrypoints.cli.shared.texts.waiting_text import waiting_words
from understudy.entrypoints.cli.shared.times import moment_words, time_of_day
from understudy.ports.monitoring.lease import SILENT_SECONDS
from understudy.ports.rollout.rollout_store import RolloutEventRecord, RolloutView
from understudy.rollout.checks.judge_check import judge_of
from understudy.rollout.start.score_warning import log_inputs_command
from understudy.rollout.status import RolloutStatus, evidence_of, judgements_seen
from understudy.rollout.verdicts.entity_verdict import failing_counts
from understudy.rollout.verdicts.slice_verdict import worse_counts
from understudy.rollout.warm_up.warm_up_verdict import held_by_scores

MAX_EVENTS = 12
_BAR, _FRAME = 40, 54
"""Widest bar of the split, and what stands beside it."""
_WHOLE = 100
"""Calls a second from which on no fraction is said."""


class HeldBy(Enum):
    """What keeps a rollout that waits, where more than one thing can."""

    STEP = auto()
    SCORES = auto()
    PART = auto()
    """Single entities or slices that the challenger does worse for."""


def status_view(
    status: RolloutStatus,
    width: int | None = None,
    max_events: int = MAX_EVENTS,
    notes: Sequence[Text] = (),
    *,
    utc: bool = False,
) -> list[RenderableType]:
    """Return a rollout as the parts of a screen; with ``utc`` its events have their moments instead of its own time."""
    width = width or data_console().width
    state = status.view.record.state
    parts: list[RenderableType] = [*heading(status), "", Text(sentence_of(status)), *notes]
    if split := [*split_lines(status, width), *left_out_lines(status)]:
        parts += ["", *split]
    if rows := evidence_of(status):
        parts += ["", checks_table(rows, status.decisions, width, sides=side_titles(status)), *judge_lines(status)]
    began_at = None if utc else state.started_at
    parts += ["", _ladder(status), "", *_story(status.events[-max_events:], began_at, state), ""]
    return [*parts, *(Text(line) for line in commands_of(status))]


def is_held_by_scores(status: RolloutStatus) -> bool:
    """Whether a rollout waits because its challenger's scores differ from the champion's."""
    is_part = failing_counts(status.events) or worse_counts(status.events)
    waits = status.view.record.state.waiting_for is WaitingFor.WARM_UP
    return waits and not is_part and held_by_scores(status.events)


def commands_of(status: RolloutStatus) -> list[str]:
    """Return what a person can do now about a rollout, the likeliest first, as commands."""
    cause = HeldBy.SCORES if held_by_scores(status.events) else HeldBy.STEP
    if failing_counts(status.events) or worse_counts(status.events):
        cause = HeldBy.PART
    record = status.view.record
    return next_commands(record.state, is_alone=record.guard_id is None, held_by=cause)


def heading(status: RolloutStatus) -> list[Text]:
    """Return the rollout's model and versions, where it stands, and whether proxies and a monitor act on it."""
    view, state = status.view, status.view.record.state
    head = Text(f"{state.model_name}  {state.champion} → {state.challenger}   ", "bold")
    head.append(phase_word(state), phase_style(state, "bold cyan")).append(f"   {place_words(view)}")
    ran = duration_words((view.record.finished_at or view.read_at) - state.started_at)
    reason = f' "{view.record.reason}"' if view.record.reason else ""
    runs = "ran" if state.phase.is_final else "running"
    began = f"{moment_words(state.started_at)} UTC"
    since = f"from {began} on" if state.phase.is_final else f"since {began}"
    by = f"{state.kind} {view.record.id}, {runs} {ran} {since}, by {view.record.started_by}"
    generation = "-" if view.policy is None else str(view.policy.generation)
    where = f"generation {generation} on {view.proxies_on_generation} of {view.proxies} live proxies"
    if not view.proxies:
        moves = state.kind is Kind.ROLLOUT and not state.phase.is_final
        unseen = HIDDEN_WORDS if view.proxies_hidden else live_proxies_words(0, 0)
        where = f"generation {generation}; {unseen}{', so no step is taken' if moves else ''}"
    if not state.phase.is_final:
        where += f" · {monitor_words(status.monitor_seconds)}"
    lines = [head, Text(by + reason, "dim"), Text(where, "dim" if view.proxies else "yellow")]
    return [*lines, *([Text(stale_proxies_words(view.stale), "yellow")] if view.stale.count else [])]


def sentence_of(status: RolloutStatus) -> str:
    """Return how the rollout stands, in a sentence."""
    state, decision = status.view.record.state, status.decision
    if decision is not None and goes_back(status):
        by = f"Goes back to {state.champion} at the monitor's next tick"
        alone = f"Has to go back to {state.champion}, and no monitor does that"
        return f"{alone if is_unwatched(status) else by}: {decision.reason}"
    if state.promoted_at is not None and not state.phase.is_final and state.phase is not Phase.WAITING:
        return _warm_sentence(status)
    if state.kind is Kind.GUARD:
        return _guard_sentence(status)
    now = status.view.read_at
    if told := warm_up_words(state, now) or waiting_words(state, now) or state.reason:
        return told
    if decision is not None:
        return f"{_verdict_words(state, decision)}: {decision.reason}"
    return status.events[-1].reason if status.events else "has not begun"


def _verdict_words(state: RolloutState, decision: Decision) -> str:
    """Return what a verdict means for the step that a rollout is at."""
    if decision.verdict is Verdict.ADVANCE:
        return f"At the monitor's next tick {after_step_words(state)}"
    if decision.verdict is not Verdict.HOLD:
        return decision.verdict.replace("_", " ")
    then = "" if decision.needs_human else f", then {after_step_words(state)}"
    return f"Stays at {state.weight_percent} %{then}"


def is_unwatched(status: RolloutStatus) -> bool:
    """Whether no monitor looks at a rollout that it should look at."""
    view, seconds = status.view, status.monitor_seconds
    is_silent = seconds is None or seconds > SILENT_SECONDS
    return is_silent and view.policy is not None and not view.record.state.phase.is_final


def goes_back(status: RolloutStatus) -> bool:
    """Whether the monitor takes a rollout back at its next tick, also one that waits or is kept warm.

    It takes nothing back while a person's change of the policy is in its way.
    """
    state, decision = status.view.record.state, status.decision
    is_ours = state.kind is Kind.ROLLOUT and not state.phase.is_final and state.waiting_for is not WaitingFor.CONFLICT
    return is_ours and decision is not None and decision.verdict is Verdict.ROLL_BACK


def after_step_words(state: RolloutState) -> str:
    """Return what a rollout does when its step is over."""
    step = state.next_step
    if step is None or step is state.plan.steps[-1]:
        return f"version {state.challenger} becomes champion"
    return f"version {state.challenger} gets {step.weight_percent} %"


def _guard_sentence(status: RolloutStatus) -> str:
    """Return what a guard has found: a step that a rollout would now take is, for a guard, that nothing is worse."""
    state, decision = status.view.record.state, status.decision
    if state.is_ended_guard:
        words = ended_words(state)
        return f"{words[:1].upper()}{words[1:]}"
    if state.reason:
        return waiting_words(state, status.view.read_at) if state.phase is Phase.WAITING else state.reason
    if decision is None:
        return status.events[-1].reason if status.events else "has not begun"
    found = "nothing is worse" if decision.verdict is Verdict.ADVANCE else "no verdict yet"
    return f"Watches, {status.view.guard} when it fails; {found}: {decision.reason}"


class Share(NamedTuple):
    """A version that answers, with its configured share and the one that was observed."""

    role: Role
    version: str
    set_percent: int
    seen_percent: float | None
    """Of the calls of the last two minutes; ``None`` while they are not counted yet, or there were none."""
    calls: str
    """Its calls a second, or why they are not known."""


def shares_of(status: RolloutStatus) -> list[Share]:
    """Return the shares of the champion and the challenger; none once the rollout is over."""
    policy, rates, left = status.view.policy, status.calls_per_second, status.view.champion_percent
    if policy is None or status.view.record.state.phase.is_final:
        return []
    champion_percent = 100 - policy.weight_percent if left is None else left
    total = sum(rates.values()) if rates else 0.0
    sides = (
        (Role.CHAMPION, policy.champion, champion_percent),
        (Role.CHALLENGER, policy.challenger, policy.weight_percent),
    )
    return [
        Share(role, version, percent, 100 * rates[role] / total if rates and total else None, _calls_words(rates, role))
        for role, version, percent in sides
        if version is not None
    ]


def split_lines(status: RolloutStatus, width: int) -> list[Text]:
    """Return a bar for each version that answers, with its share and its calls; the configured one beside it."""
    room = max(10, min(_BAR, width - _FRAME))
    lines = []
    for share in shares_of(status):
        percent = float(share.set_percent) if share.seen_percent is None else share.seen_percent
        filled = round(room * percent / 100)
        line = Text(f"  {f'{share.role} {share.version}':<16} ")
        line.append("█" * filled, "cyan" if share.role is Role.CHAMPION else "yellow")
        line.append("░" * (room - filled), "dim").append(f" {percent:5.1f} %")
        configured = "set; " if share.seen_percent is None else ""
        behind = "" if share.seen_percent is None else f"  set {share.set_percent} %"
        line.append(f"  {configured}{share.calls}{behind}", "dim")
        lines.append(line)
    return lines


def judge_lines(status: RolloutStatus) -> list[Text]:
    """Return what a rollout's judge was asked and how far it can be relied on; nothing of a plan without one."""
    limit = judge_of(status.view.record.state)
    return [] if limit is None else [Text(judge_words(judgements_seen(status), limit), "dim")]


def left_out_lines(status: RolloutStatus) -> list[Text]:
    """Return how many calls of each version say nothing of errors, because their callers gave them little time."""
    hurried = _sides_words({role: counts.hurried_calls for role, counts in status.left_out.items()})
    expired = _sides_words({role: counts.expired_calls for role, counts in status.left_out.items()})
    lines = []
    if hurried:
        lines.append(f"  left out: {hurried}; their callers' deadlines are too short")
    if expired:
        lines.append(f"  slow and no errors: {expired} that ended at their callers' deadlines")
    return [Text(line, "dim") for line in lines]


def _sides_words(calls: Mapping[Role, int]) -> str:
    """Return how many calls of each version: ``4,120 calls of the challenger, 30 of the champion``."""
    counted = [(role, number) for role, number in calls.items() if number]
    return ", ".join(
        f"{number:,} {'calls ' if place == 0 else ''}of the {role}" for place, (role, number) in enumerate(counted)
    )


def next_commands(state: RolloutState, *, is_alone: bool, held_by: HeldBy = HeldBy.STEP) -> list[str]:
    """Return what a person can do now, the likeliest first.

    A version beside further arms is watched with others. ``held_by`` says what a warm-up or a step waits for.
    """
    model = state.model_name
    if state.phase.is_final:
        return [
            f"→ understudy audit list {quote(model)}",
            f"→ understudy rollout show {quote(model)} --html rollout.html",
        ]
    if state.kind is Kind.GUARD and state.waiting_for is None:
        one_alone = (
            f"understudy model set {quote(model)} --arm {quote(state.challenger)}=0 (--weight 0: the challenger)"
        )
        return [
            f"→ to take {'it' if is_alone else 'all shares'} back: understudy rollback {quote(model)}",
            *([] if is_alone else [f"→ this one alone: {one_alone}"]),
            f"→ what a failure leads to: understudy model set {quote(model)} --guard rollback|alert|off",
        ]
    if state.phase is Phase.WAITING:
        return _waiting_commands(state, held_by)
    if state.promoted_at is not None:
        return [f"→ to put {state.champion} back at once: understudy rollback {quote(model)}"]
    pause = f"→ to stop here: understudy rollout pause {quote(model)}"
    if not state.step_starts:  # there is no share that a rollback could take back
        return [pause, f"→ to end it before its first share: understudy rollout abort {quote(model)}"]
    return [pause, f"→ to take it back: understudy rollback {quote(model)}"]


def monitor_words(seconds: float | None) -> str:
    """Return when a monitor was last heard."""
    if seconds is None:
        return "no monitor has ever led"
    if seconds > SILENT_SECONDS:
        return f"no monitor for {duration_words(seconds)}: understudy doctor"
    return f"monitor {max(0.0, seconds):.0f} s ago"


def _calls_words(rates: Mapping[Role, float] | None, role: Role) -> str:
    if rates is None:
        return "not counted yet"
    return f"{_rate(rates[role])}/s" if any(rates.values()) else "no calls seen"


def _rate(calls_per_second: float) -> str:
    return f"{calls_per_second:,.0f}" if calls_per_second >= _WHOLE else f"{calls_per_second:.3g}"


def place_words(view: RolloutView) -> str:
    """Return where a rollout is: its step and its share."""
    state = view.record.state
    if state.kind is Kind.GUARD:
        return "guard of a champion" if state.promoted_at is not None else f"guard at {state.weight_percent} %"
    if not state.step_starts:
        return "before its first step" if state.phase.is_final or state.is_at_gate else "warming up"
    return f"step {state.step + 1} of {len(state.plan.steps)}   {share_words(state, view.policy)}"


def _warm_sentence(status: RolloutStatus) -> str:
    state, now = status.view.record.state, status.view.read_at
    until = state.warm_until or now
    kept = f"until {time_of_day(until)} UTC ({duration_words(max(0.0, until - now))} more)" if until > now else "still"
    only_alerts = state.kind is Kind.GUARD and status.view.guard is not GuardMode.ROLLBACK
    then = "The monitor alerts, and changes nothing," if only_alerts else "It comes back by itself"
    words = (
        f"{state.challenger} is champion; {state.champion} is kept warm {kept}. {then} when, beside "
        f"its own last hour, {state.challenger} has proven more than {LIMITS.tolerated_error_ratio:g}x the errors or "
        f"slow answers, or a typical latency of {LIMITS.lone_latency_ratio:g}x."
    )
    return words if status.decision is None else f"{words} So far: {status.decision.reason}"


def _ladder(status: RolloutStatus) -> RenderableType:
    styles = {
        "✔": "green",
        "✖": "bold red",
        "○": "dim",
        ENDED: "dim",
        "●": STYLES.get(status.view.record.state.phase, "bold yellow"),
    }
    return facts(
        (share, Text(f"{mark} ", styles[mark]).append(words, "dim" if mark == "○" else ""))
        for share, mark, words in ladder_cells(status)
    )


def _story(events: Sequence[RolloutEventRecord], began_at: float | None, state: RolloutState) -> list[Text]:
    """Return what happened; the first event of a phase has the phase's mark, but the end of a guard has none."""
    before = [None, *(event.phase for event in events)]
    lines = []
    for event, phase_before in zip(events, before, strict=False):
        is_news = event.phase != phase_before and not (state.is_ended_guard and event.phase == Phase.SUCCEEDED)
        lines.append(event_text(event, began_at, is_news=is_news))
        if lack_inputs(event.reason):
            lines.append(Text(f"{' ' * INDENT}→ {log_inputs_command(state.model_name)}", "dim"))
    return lines


def _waiting_commands(state: RolloutState, held_by: HeldBy) -> list[str]:
    model = quote(state.model_name)
    resume, abort = f"understudy rollout resume {model}", f"understudy rollout abort {model}"
    if held_by is HeldBy.PART and state.waiting_for is WaitingFor.TIME:
        rolls = state.kind is Kind.ROLLOUT
        return [
            f"→ to take it back: {abort}",
            f"→ to leave it at {state.weight_percent} % and watch on: {resume}",
            *([f"→ to go on without them: understudy rollout promote {model}"] if rolls else []),
        ]
    if held_by is HeldBy.SCORES and state.waiting_for is WaitingFor.WARM_UP:
        return [
            f"→ how they differ, call by call: understudy log replay {model} {quote(state.challenger)}",
            f"→ if meant so: {resume} --expect-different-scores",
            f"→ once its server is mended, to compare again: {resume}",
            f"→ to take it back: {abort}",
        ]
    if state.is_at_gate:
        return _gate_commands(state, resume, abort)
    before = {
        WaitingFor.CONFLICT: f"→ who changed it: understudy audit list {model}; put the roles back, then:",
        WaitingFor.TIME: f"→ to take the step without its proof: understudy rollout promote {model}",
        WaitingFor.SPLIT: "→ whether every proxy acts and logs: understudy doctor; then:",
        WaitingFor.WARM_UP: f"→ what it answers with: understudy version show {model} {quote(state.challenger)}; then:",
    }
    first = [before[state.waiting_for]] if state.waiting_for in before else []
    goes_on = "→ to give it that time again" if state.waiting_for is WaitingFor.TIME else "→ to let it go on"
    return [*first, f"{goes_on}: {resume}", f"→ to take it back: {abort}"]


def _gate_commands(state: RolloutState, resume: str, abort: str) -> list[str]:
    model = quote(state.model_name)
    meant = model if state.next_step is None else f"{model} --to {quote(str(state.next_step.weight_percent))}"
    in_place = " in the gate's place" if any(gate.http for gate in closed_gates(state).values()) else ""
    is_refused = state.gate is not None and state.gate.is_refused
    return [
        f'→ to approve it{in_place}: understudy rollout approve {meant} --reason "…"',
        *([f"→ to ask the gate again: {resume}"] if is_refused else []),
        f"→ its checks with charts, for who approves: understudy rollout show {model} --html rollout.html",
        f"→ to take it back: {abort}",
    ]
