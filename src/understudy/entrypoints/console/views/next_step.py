"""What happens next to a rollout, and what would take it back, in a sentence each."""

from collections.abc import Sequence

from understudy.core.canary.decision import Evidence, Verdict
from understudy.core.canary.messages import evidence_words
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.durations import clock_words
from understudy.core.rollout.gates import closed_gate
from understudy.core.rollout.state import GuardMode, Kind, Phase
from understudy.entrypoints.cli.rollout.checks_text import check_cells
from understudy.entrypoints.cli.rollout.status import after_step_words
from understudy.rollout.status import RolloutStatus

_NAMED = 3


def next_words(status: RolloutStatus) -> str:
    """Return what happens next, and when."""
    state = status.view.record.state
    if state.phase.is_final:
        return "Nothing more: it is over."
    if state.kind is Kind.GUARD:
        return _guard_next(status)
    gate = closed_gate(state)
    if gate and state.is_at_gate:
        return f"{gate[0].upper()}{gate[1:]}. A challenger that does worse is still taken back."
    if state.phase is Phase.WAITING:
        return (
            f"It stays at {state.weight_percent} % until a person resumes, promotes or takes it back. "
            "A challenger that does worse is still taken back."
        )
    if state.promoted_at is not None:
        until = state.warm_until or status.view.read_at
        return f"{state.champion} is kept warm until {clock_words(until)}; then the rollout is over."
    return _next_step(status)


def _next_step(status: RolloutStatus) -> str:
    """Return what the next tick does of a rollout that moves, as far as this moment's analysis tells."""
    state, decision = status.view.record.state, status.decision
    if not state.step_starts:
        first = state.plan.steps[0].weight_percent
        return f"The monitor warms {state.challenger} up; then its first share is {first} %."
    verdict = Verdict.HOLD if decision is None else decision.verdict
    if verdict is Verdict.ROLL_BACK:
        return f"At the monitor's next tick every call goes back to {state.champion}."
    if verdict is Verdict.ADVANCE:
        return f"At the monitor's next tick {after_step_words(state)}."
    share = state.weight_percent
    return (
        f"It stays at {share} % until its time, its calls and its evidence are there; then {after_step_words(state)}."
    )


def _guard_next(status: RolloutStatus) -> str:
    state, mode = status.view.record.state, status.view.guard
    if state.phase is Phase.WAITING:
        return "Nothing until a person decides."
    if mode is GuardMode.ROLLBACK:
        return f"Nothing while nothing is worse; when a check fails, {state.champion} answers every call again."
    return "Nothing by itself: when a check fails the monitor alerts, and changes nothing."


def back_words(status: RolloutStatus, rows: Sequence[Evidence]) -> str:
    """Return what would take the challenger back, the checks nearest to it first."""
    state = status.view.record.state
    if state.phase.is_final:
        return ""
    judged = [row for row in rows if row.limit is not None and row.evidence_needed and row.check is not SAMPLE_RATIO]
    judged.sort(key=_nearness, reverse=True)
    if not judged:
        return "A check that fails; none has figures yet."
    named = []
    for row in judged[:_NAMED]:
        name, _, _, change, limit, _ = check_cells(row)
        evidence = evidence_words(row.evidence or 0.0, row.evidence_needed or 0.0)
        now = "no figures yet" if row.change is None else f"now {change}"
        named.append(f"{name} beyond {limit} ({now}; evidence {evidence})")
    more = f"; or one of {len(judged) - _NAMED} other checks" if len(judged) > _NAMED else ""
    whom = "" if state.kind is Kind.ROLLOUT or status.view.guard is GuardMode.ROLLBACK else " An operator is alerted."
    return f"Any one of: {'; '.join(named)}{more}.{whom}"


def _nearness(row: Evidence) -> tuple[bool, float]:
    return row.change is not None, (row.evidence or 0.0) / (row.evidence_needed or 1.0)
