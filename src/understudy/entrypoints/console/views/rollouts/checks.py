"""The checks of a rollout's page: each with its state, what they come to together, and why there is none."""

from collections.abc import Sequence
from typing import NamedTuple

from understudy.core.canary.decision import CheckState, Evidence, Worse
from understudy.core.canary.sample_ratio_check import SAMPLE_RATIO
from understudy.core.rollout.state import Kind
from understudy.entrypoints.cli.rollout.checks_text import check_cells
from understudy.entrypoints.cli.rollout.status import is_unwatched
from understudy.entrypoints.cli.shared.texts.event_text import check_state_words
from understudy.entrypoints.console.views.tone import Tone, tone_of_check
from understudy.rollout.status import RolloutStatus

NOT_KNOWN = ("…", "not known now", Tone.CALM)
"""What stands in the place of a pass that no monitor vouches for at this moment."""
_FIRST = (Tone.BAD, Tone.WAIT)


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
    why: str = ""
    """Why it passes although its figure is beyond its limit; else empty."""


def check_rows(status: RolloutStatus, rows: Sequence[Evidence], *, is_old: bool) -> tuple[CheckRow, ...]:
    """Return the checks: what fails first, then what needs a look, and the others as the analysis has them.

    Of figures that are old none passes now.
    """
    is_known = are_known(status, is_old=is_old)
    return tuple(sorted((_check(row, is_known=is_known) for row in rows), key=_urgency))


def checks_words(checks: Sequence[CheckRow], *, is_known: bool) -> tuple[str, Tone]:
    """Return whether a check fails, and how many are in which state, in a sentence with its tone.

    That none fails is said where it is known of this moment; one that has failed is said in any case.
    """
    failing = [row.name for row in checks if row.tone is Tone.BAD]
    counted: dict[str, int] = {}
    for row in checks:
        counted[row.word] = counted.get(row.word, 0) + 1
    numbers = ", ".join(f"{number} {word}" for word, number in counted.items())
    if failing:
        verb = "fails" if len(failing) == 1 else "fail"
        return f"{' and '.join(failing)} {verb}; of {len(checks)}: {numbers}.", Tone.BAD
    if not is_known:
        return f"Not known now: none of {len(checks)} had failed when last judged.", Tone.CALM
    return f"None of {len(checks)} fails: {numbers}.", Tone.CALM


def nothing_compared_words(status: RolloutStatus) -> str:
    """Return why there are no checks, also where charts below have figures: those are counted without a verdict."""
    state = status.view.record.state
    counted = "The charts count calls of both versions, and judge none."
    if state.phase.is_final:
        return "It ended before anything was compared."
    if state.promoted_at is not None:
        return (
            f"{state.challenger} is compared with the champion's last hour once a window of its own calls is in. "
            f"The charts are of the steps before."
        )
    if not state.step_starts:
        first = "its first share" if state.kind is Kind.ROLLOUT else "a monitor watches it"
        return f"Nothing is judged before {first}. {counted}"
    return f"Nothing is judged yet: the first whole 15 s of calls at this share are not in. {counted}"


def are_known(status: RolloutStatus, *, is_old: bool) -> bool:
    """Whether what checks say holds now: they were judged at this look, and a monitor acts on it; or it is over."""
    if is_old:
        return False
    is_of_now = status.decision is not None and not is_unwatched(status)
    return is_of_now or status.view.record.state.phase.is_final


def _check(row: Evidence, *, is_known: bool) -> CheckRow:
    name, champion, challenger, change, limit, evidence = check_cells(row)
    mark, _, word = " ".join(check_state_words(row).plain.split()).partition(" ")
    tone = tone_of_check(row)
    if tone is Tone.GOOD and not is_known:
        mark, word, tone = NOT_KNOWN
    why = _why_it_passes(row) if tone is Tone.GOOD else ""
    return CheckRow(name, mark, word, tone, champion, challenger, change, limit, evidence, why)


def _why_it_passes(row: Evidence) -> str:
    """Return why a figure beyond its limit is no failure; empty where it is within it."""
    is_beyond = row.change is not None and row.check.is_beyond(row.change, row.change, row.limit)
    if row.state is not CheckState.OK or not is_beyond or row.check is SAMPLE_RATIO:  # whose limit is not shown
        return ""
    near = row.change_high if row.check.worse is Worse.BEYOND_LIMIT and (row.limit or 0) <= 1 else row.change_low
    if near is None:
        return "beyond its limit, which may be chance"
    return "beyond its limit, which may be chance: its interval reaches to the other side"


def _urgency(row: CheckRow) -> int:
    """Return a check's place: what fails first, then what needs a look, and the others as the analysis has them."""
    return _FIRST.index(row.tone) if row.tone in _FIRST else len(_FIRST)
