"""Tones: how good or bad something is. Each is drawn as a colour and a mark, and always with a word."""

from enum import StrEnum

from understudy.core.canary.decision import CheckState, Evidence
from understudy.core.rollout.state import Phase


class Tone(StrEnum):
    """The name is the class in the style sheet."""

    GOOD = "good"
    BAD = "bad"
    WAIT = "wait"
    """A person is needed, or something is not as it should be."""
    HERE = "here"
    """The step that is taken at this moment."""
    CALM = "calm"
    """Goes on by itself, or says nothing."""


NOTHING = "\N{EN DASH}"
"""What stands where there is nothing to say."""
OF_PHASE = {
    Phase.PROGRESSING: Tone.CALM,
    Phase.PROMOTING: Tone.CALM,
    Phase.WAITING: Tone.WAIT,
    Phase.SUCCEEDED: Tone.GOOD,
    Phase.FAILED: Tone.BAD,
}
_OF_CHECK = {
    CheckState.OK: Tone.GOOD,
    CheckState.FAIL: Tone.BAD,
    CheckState.INVALID: Tone.BAD,
    CheckState.TOO_EARLY: Tone.CALM,
    CheckState.UNPROVEN: Tone.WAIT,
    CheckState.WARMING: Tone.WAIT,
    CheckState.SHARED: Tone.WAIT,
}


def tone_of_check(row: Evidence) -> Tone:
    """Return a check's tone; one whose whole interval is worse is never good, whatever was stored."""
    return Tone.WAIT if row.state is CheckState.OK and row.is_beyond_limit else _OF_CHECK[row.state]
