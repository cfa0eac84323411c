"""What happens next to a rollout, and what would take it back, in a sentence each."""

from collections.abc import Sequence
from datetime import UTC, datetime

from understudy.core.canary.decision import Evidence, Verdict, Worse
from understudy.core.canary.messages import evidence_words
from understudy.core.canary.reference_rule import POLICY_NAME as SEED
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.durations import clock_words, duration_words, moment
from understudy.core.rollout.gates import closed_gate
from understudy.core.rollout.state import GuardMode, Kind, Phase
from understudy.entrypoints.cli.rollout.checks_text import NONE_BEFORE, check_cells, limit_words
from understudy.entrypoints.cli.rollout.status import after_step_words, goes_back, is_unwatched
from understudy.rollout.status import RolloutStatus

_SOONEST = (
    "soonest: within 90 s of its first calls where each of them fails, as measured in docs/explanation/statistics.md"
)
_NAMED = 3
_SOON_SECONDS = 600.0
_ALL = 100


def next_words(status: RolloutStatus) -> str:
    """Return what happens next, and when."""
    state = status.view.record.state
    if state.phase.is_final:
        return f"Nothing more: it is over. {_answering_words(status)}".strip()
    if state.kind is Kind.GUARD:
        return _guard_next(status)
    if goes_back(status):
        by_hand = f"Roll back gives {state.champion} every call at once; a monitor does it at its first tick."
        alone = f"Nothing by itself, since no monitor leads. {by_hand}"
        return (
            alone if is_unwatched(status) else f"At the monitor's next tick every call goes back to {state.champion}."
        )
    if waits := _waiting_words(status):
        is_watched = "" if not state.step_starts else f" If {state.challenger} does worse it is still taken back."
        return f"{waits}{is_watched}"
    if state.promoted_at is not None:
        until = state.warm_until or status.view.read_at
        return f"{state.champion} is kept warm until {clock_words(until)}; then the rollout is over."
    return (
        f"Nothing while no monitor leads. With one: {_next_step(status)}"
        if is_unwatched(status)
        else _next_step(status)
    )


def _waiting_words(status: RolloutStatus) -> str:
    """Return what a rollout waits for; nothing of one that moves."""
    state = status.view.record.state
    gate = closed_gate(state)
    if gate and state.is_at_gate:
        return f"{gate[0].upper()}{gate[1:]}."
    if state.phase is not Phase.WAITING:
        return ""
    if not state.step_starts:
        return f"{state.challenger} gets no calls until a person resumes or stops it."
    if state.promoted_at is not None:
        kept = f"{state.challenger} answers every call and {state.champion} is kept warm"
        return f"{kept} until a person resumes or takes it back."
    share = state.weight_percent if status.view.policy is None else status.view.policy.weight_percent
    stays = f"It stays at {share} % until a person resumes, promotes or takes it back."
    return f"{stays} Once resumed: {_resumed_words(status)}."


def _resumed_words(status: RolloutStatus) -> str:
    """Return what takes a rollout to its next step once it is resumed: time at a share goes on while it waits.

    Of a share that was changed meanwhile the step begins again.
    """
    view, state = status.view, status.view.record.state
    step = state.plan.steps[state.step]
    over_at = state.step_started_at + step.dwell_seconds
    counted = f"the wait counts, so {'over since' if over_at <= view.read_at else 'over at'}"
    counted, again = f" ({counted} {moment(over_at)} UTC)", ""
    if view.policy is not None and view.policy.weight_percent != state.weight_percent:
        counted, again = "", f"the step at {state.weight_percent} % begins again; "
    dwell = f"after {duration_words(step.dwell_seconds)} at this share{counted}"
    needs = f"{dwell} and {step.min_requests:,} requests of its own, where no check fails"
    return f"{again}{needs}, {after_step_words(state)}"


def _answering_words(status: RolloutStatus) -> str:
    """Return who answers after a rollout, where that is one version alone."""
    view = status.view
    if view.policy is None:
        return ""
    share = 100 - view.policy.weight_percent if view.champion_percent is None else view.champion_percent
    return f"{view.policy.champion} answers every call." if share == _ALL else ""


def _next_step(status: RolloutStatus) -> str:
    """Return what the next tick does of a rollout that moves, as far as this moment's analysis tells."""
    state, decision = status.view.record.state, status.decision
    if not state.step_starts:
        first = state.plan.steps[0].weight_percent
        return f"The monitor warms {state.challenger} up; then its first share is {first} %."
    verdict = Verdict.HOLD if decision is None else decision.verdict
    if verdict is Verdict.ADVANCE:
        return f"At the monitor's next tick {after_step_words(state)}."
    then = f"then {after_step_words(state)}"
    if decision is not None and decision.needs_human:
        return f"It stays at {state.weight_percent} % until a person decides."
    over_at = state.step_starts[-1] + state.plan.steps[state.step].dwell_seconds
    until = _until_words(over_at, status.view.read_at) if over_at > status.view.read_at else "its evidence is there"
    return f"It stays at {state.weight_percent} % until {until}; {then}."


def _until_words(over_at: float, now: float) -> str:
    """Return the earliest end of a step, to the second where that is soon."""
    if over_at - now >= _SOON_SECONDS:
        return f"{clock_words(over_at)} at the earliest"
    return f"{datetime.fromtimestamp(over_at, UTC):%H:%M:%S} UTC at the earliest"


def _guard_next(status: RolloutStatus) -> str:
    state, mode = status.view.record.state, status.view.guard
    if state.phase is Phase.WAITING:
        return "Nothing until a person decides."
    if is_unwatched(status):
        return f"Nothing by itself, since no monitor leads: {state.challenger} is not taken back, however bad it is."
    if mode is GuardMode.ROLLBACK:
        return f"Nothing while nothing is worse; when a check fails, {state.champion} answers every call again."
    return "Nothing by itself: when a check fails the monitor alerts, and changes nothing."


def back_words(status: RolloutStatus, rows: Sequence[Evidence]) -> tuple[str, tuple[str, ...]]:
    """Return what would take the challenger back, and a line for each of the checks that are nearest to it."""
    state = status.view.record.state
    if state.phase.is_final or goes_back(status):
        return "", ()
    judged = [row for row in rows if row.limit is not None and row.evidence_needed and row.check is not SAMPLE_RATIO]
    judged.sort(key=_nearness, reverse=True)
    if not judged:
        return _to_come_words(status)
    others = [f"{check_cells(row)[0]} {_beyond_words(row)}" for row in judged[_NAMED:]]
    lines = (*(_back_line(row) for row in judged[:_NAMED]), *([", ".join(others)] if others else []))
    return f"{_by_what(status, 'any one of these')}, once it is proven:", lines


def _by_what(status: RolloutStatus, found: str) -> str:
    """Return what a finding leads to: where no monitor leads, or a guard only alerts, it takes nothing back."""
    if is_unwatched(status):
        return f"Nothing while no monitor leads; with one, {found}"
    if status.view.record.state.kind is Kind.ROLLOUT or status.view.guard is GuardMode.ROLLBACK:
        return f"{found[0].upper()}{found[1:]}"
    return f"Nothing by itself; an operator is alerted by {found}"


def _to_come_words(status: RolloutStatus) -> tuple[str, tuple[str, ...]]:
    """Return what will be checked, with its limits, before anything has figures."""
    state = status.view.record.state
    lines = [
        f"{row.title} {_beyond_words(row)}"
        for row in status.to_come
        if row.limit is not None and row.check is not SAMPLE_RATIO
    ]
    if not lines:
        return f"{_by_what(status, 'a check that fails')}; none has figures yet.", ()
    lines += [] if state.plan.canary_policy == SEED else [_SOONEST]
    by = f"once it is proven by calls that {state.challenger} has answered"
    return f"{_by_what(status, 'any one of these')}, {by}:", tuple(lines)


def _back_line(row: Evidence) -> str:
    name, _, _, change, _, _ = check_cells(row)
    if row.change is None:
        return f"{name} {_beyond_words(row)}: no figures yet"
    now = "" if change.startswith(NONE_BEFORE) else "now "
    return f"{name} {_beyond_words(row)}: {now}{change}; {_proven_words(row)}"


def _proven_words(row: Evidence) -> str:
    """Return how far it is from proof: the evidence, of which the remark below the checks says what it counts."""
    evidence, needed = row.evidence or 0.0, row.evidence_needed or 0.0
    if evidence >= needed:
        return f"proven by evidence of {evidence_words(evidence, needed)}"
    return f"evidence: {evidence:,.0f} of the {needed:,.0f} that prove it"


def _beyond_words(row: Evidence) -> str:
    """Return what a check does not tolerate: of a ratio, beside the champion's own figure."""
    limit = limit_words(row)
    if row.check.worse is not Worse.ABOVE or row.check.is_in_deviations or row.check.is_distance:
        return f"beyond {limit}"
    return "above the champion's" if row.limit == 1 else f"above {limit} the champion's"


def _nearness(row: Evidence) -> tuple[bool, float]:
    return row.change is not None, (row.evidence or 0.0) / (row.evidence_needed or 1.0)
