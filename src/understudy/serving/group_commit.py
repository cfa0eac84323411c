"""Group commit: the rows of calls that one model call answers are one write to the spool, before any of their answers.

Source:
    The term and the idea are the databases' (J. Gray and A. Reuter, *Transaction Processing*, 1993): whoever waits for
    its own row waits for a few others, which costs one write instead of several.
"""

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

import structlog

from understudy.core.prediction import PredictionRow
from understudy.ports.prediction_log import PredictionSpool

_log = structlog.get_logger(__name__)


class _Held(NamedTuple):
    """A call that is answered when its rows are written, or told why they cannot be."""

    rows: Sequence[PredictionRow]
    tell: Callable[[Any], None]
    outcome: Any


class GroupCommit:
    """Inside ``with``, rows and answers are held; leaving it writes the rows, then gives the answers.

    Nothing may be awaited inside: what is held there must be over within one turn of the event loop.

    Args:
        spool: Where the rows go.
    """

    def __init__(self, spool: PredictionSpool) -> None:
        self._spool = spool
        self._is_open = False
        self._rows: list[PredictionRow] = []
        self._held: list[_Held] = []

    def append(self, row: PredictionRow) -> None:
        """Write a row of the call that is answered next: now, or when the group is left."""
        if self._is_open:
            self._rows.append(row)
        else:
            self._spool.append(row)

    def answer(self, tell: Callable[[Any], None], outcome: Any) -> None:
        """``tell`` a call's outcome, now or when its row is written; a defect of that is told instead.

        Args:
            tell: Takes the outcome or an exception; must not raise.
            outcome: What to tell.
        """
        if self._is_open:
            self._held.append(_Held(self._rows, tell, outcome))
            self._rows = []
        else:
            tell(outcome)

    def __enter__(self) -> None:
        self._is_open = True

    def __exit__(
        self, kind: type[BaseException] | None, defect: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        held, self._held = self._held, []
        rows, self._rows = [row for one in held for row in one.rows] + self._rows, []
        finish: Callable[[_Held], None] = _tell
        if rows:
            try:
                self._spool.append_all(rows)
            except Exception:  # noqa: BLE001 - a defect of ours, of one row: the others are written without it
                finish = partial(_write_and_tell, self._spool)
        for one in held:
            finish(one)


def _tell(held: _Held) -> None:
    _say(held, held.outcome)


def _write_and_tell(spool: PredictionSpool, held: _Held) -> None:
    try:
        for row in held.rows:
            spool.append(row)
    except Exception as defect:  # noqa: BLE001 - whoever is told answers for it, and logs it
        _say(held, defect)
    else:
        _say(held, held.outcome)


def _say(held: _Held, outcome: Any) -> None:
    try:
        held.tell(outcome)
    except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the others of the group their answers
        _log.exception("answer.failed")
