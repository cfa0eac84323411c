"""Whom a rollout waits for, and why; at a gate also since when."""

from understudy.core.durations import duration_words
from understudy.core.rollout.gates import questions
from understudy.core.rollout.state import Phase, RolloutState, WaitingFor
from understudy.entrypoints.cli.shared.times import moment_words


def waiting_words(state: RolloutState, now: float) -> str:
    """Return whom a rollout waits for and why, in a sentence; empty where it does not wait."""
    if state.phase is not Phase.WAITING:
        return ""
    words = f"Waits for {awaited(state)}: {state.reason}"
    if state.gate is None or not state.is_at_gate:
        return words
    waited = duration_words(max(0.0, now - state.gate.since))
    return f"{words}; at the gate since {moment_words(state.gate.since)} UTC ({waited})"


def awaited(state: RolloutState) -> str:
    """Return for whom a rollout waits: a person, or the service of its gate by its name; empty where it does not."""
    if state.phase is not Phase.WAITING:
        return ""
    if state.waiting_for is not WaitingFor.GATE:
        return "a person"
    names = " and ".join(dict.fromkeys(ask.name for ask in questions(state)))
    return f"the service {names}" if names else "a service"
