"""What a warm-up does and waits for, since when, and where to look when it takes too long."""

from understudy.core.durations import duration_words
from understudy.core.rollout.freeze import freeze_words, unfrozen_seconds
from understudy.core.rollout.state import Kind, Phase, RolloutState
from understudy.core.rollout.state_machine import UNKNOWN_SECONDS, WARM_UP_SECONDS
from understudy.entrypoints.cli.shared.times import moment_words

OVERDUE_SECONDS = 60.0
"""A warm-up whose model servers answer takes a few seconds."""
_ASKED_BY = WARM_UP_SECONDS + UNKNOWN_SECONDS
"""A monitor that works has asked a person by then."""


def warm_up_words(state: RolloutState, now: float) -> str:
    """Return what a rollout's warm-up does and waits for; empty where it is over, or waits for a person."""
    if not _is_warming_up(state):
        return ""
    frozen = freeze_words(state.plan.freezes, now)
    if frozen:
        return f"Its first step waits: {frozen}"
    since = f"since {moment_words(state.limit_from)} UTC ({duration_words(int(_waited_seconds(state, now)))})"
    asked = f"{state.challenger}'s model servers have to say that they are ready, and to answer example calls"
    words = f"Warming up {since}; no caller meets {state.challenger} until it passes: {asked}."
    if not is_warm_up_overdue(state, now):
        return words
    then = (
        "By now a monitor that works would have asked a person."
        if _waited_seconds(state, now) > _ASKED_BY
        else f"After {duration_words(WARM_UP_SECONDS)} of failures the monitor asks a person."
    )
    log = "what each try found is in the monitor's log (rollout.warm_up_failed)"
    return f"{words} Overdue, it takes seconds where they answer: look at Health (understudy doctor); {log}. {then}"


def is_warm_up_overdue(state: RolloutState, now: float) -> bool:
    """Whether a warm-up takes unusually long; the time of a freeze does not count."""
    is_frozen = bool(freeze_words(state.plan.freezes, now))
    return _is_warming_up(state) and not is_frozen and _waited_seconds(state, now) > OVERDUE_SECONDS


def _is_warming_up(state: RolloutState) -> bool:
    return state.kind is Kind.ROLLOUT and state.phase is Phase.PROGRESSING and not state.step_starts


def _waited_seconds(state: RolloutState, now: float) -> float:
    return max(0.0, unfrozen_seconds(state.plan.freezes, state.limit_from, now))
