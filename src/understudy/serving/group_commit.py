"""Group commit: the rows of calls that end in one turn of the event loop are one write to the spool, before any answer.

Source:
    The term and the idea are the databases' (J. Gray and A. Reuter, *Transaction Processing*, 1993): whoever waits for
    its own row waits for a few others, which costs one write instead of several.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import structlog

from understudy.core.prediction_log.row import PredictionRow
from understudy.ports.prediction_log import PredictionSpool

_log = structlog.get_logger(__name__)


class _Held(NamedTuple):
    """A call that is answered when its rows are written, or told why they cannot be."""

    rows: Sequence[PredictionRow]
    tell: Callable[[Any], None]
    outcome: Any


class GroupCommit:
    """Writes the rows of calls that are answered by callback at the end of the turn, and gives the answers then.

    Any other row is written at once.

    Args:
        spool: Where the rows go.
    """

    def __init__(self, spool: PredictionSpool) -> None:
        self._spool = spool
        self._collected: list[PredictionRow] | None = None
        """Rows of the call that is about to be held; ``None`` while no such call is under way."""
        self._held: list[_Held] = []

    def append(self, row: PredictionRow) -> None:
        """Take a row of the call that :meth:`collect` began, or write one of any other call."""
        if self._collected is None:
            self._spool.append(row)
        else:
            self._collected.append(row)

    def collect(self) -> None:
        """Begin a call that :meth:`answer` ends; nothing may be awaited between the two."""
        self._collected = []

    def answer(self, tell: Callable[[Any], None], outcome: Any) -> None:
        """``tell`` a call's outcome when its rows are written, at the end of the turn; a defect of that instead.

        Args:
            tell: Takes the outcome or an exception; must not raise.
            outcome: What to tell.
        """
        rows, self._collected = self._collected, None
        if not self._held:
            asyncio.get_running_loop().call_soon(self.flush)
        self._held.append(_Held(rows or (), tell, outcome))

    def flush(self) -> None:
        """Write the rows that are held, and then give the answers."""
        held, self._held = self._held, []
        rows = [row for one in held for row in one.rows]
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
