"""A mean score that has moved, as a verdict stores it and judges it again."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from understudy.core.canary.scores.moved_scores import move_words, score_move
from understudy.core.windows.strata import Strata
from understudy.core.windows.strata_codec import strata_from_text

MOVED = "moved_scores"
"""Where the event of a rollout that waits for it has what its verdict rests on."""


class Moved(NamedTuple):
    """A challenger whose mean score has moved, and what says so."""

    words: str
    strata: Strata
    step_starts: Sequence[float]
    planned: int

    def inputs(self, stored: Mapping[str, object]) -> dict[str, Any]:
        """Return the inputs of its event, given what is stored of the strata."""
        told = {"step_starts": list(self.step_starts), "planned": self.planned, "words": self.words}
        return {MOVED: {**stored, **told}}


def moved_words_again(stored: Mapping[str, Any]) -> str:
    """Judge stored scores again, and return what is said of them.

    Raises:
        LookupError, TypeError, ValueError: They cannot be read.
    """
    strata = strata_from_text(stored["strata"])
    return move_words(score_move(strata, [float(start) for start in stored["step_starts"]], int(stored["planned"])))
