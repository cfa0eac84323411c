"""Group commit: the rows of calls that end in one turn of the event loop are one write to the spool, before any answer.

Source:
    The term and the idea are the databases' (J. Gray and A. Reuter, *Transaction Processing*, 1993): a call that waits
    for its own row waits for a few others, which costs one write instead of several.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import structlog

from understudy.core.prediction_log.row import PredictionRow
from understudy.ports.prediction_log import PredictionSpool

_log = structlog.get_logger(__name__)


class _Pending(NamedTuple):
    """A call that is answered when its row is written, or with the defect that kept it from being written."""

    row: PredictionRow | None
    on_result: Callable[[Any], None]
    outcome: Any


class GroupCommit:
    """Writes the rows of calls that are answered by callback at the end of the turn, and gives the answers then.

    Args:
        spool: Where the rows go.
    """

    def __init__(self, spool: PredictionSpool) -> None:
        self._spool = spool
        self._pending: list[_Pending] = []

    def append(self, row: PredictionRow) -> None:
        """Write the row of a call that is not answered by callback, at once."""
        self._spool.append(row)

    def commit(self, row: PredictionRow | None, on_result: Callable[[Any], None], outcome: Any) -> None:
        """Write a row at the end of the turn, and then call ``on_result``: with the outcome, or a defect of the write.

        Args:
            row: ``None`` for a call that leaves none.
            on_result: Takes the outcome or an exception; must not raise.
            outcome: What became of the call.
        """
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append(_Pending(row, on_result, outcome))

    def flush(self) -> None:
        """Write the rows that are pending, and then give the answers."""
        pending, self._pending = self._pending, []
        rows = [one.row for one in pending if one.row is not None]
        finish: Callable[[_Pending], None] = _answer
        if rows:
            try:
                self._spool.append_all(rows)
            except Exception:  # noqa: BLE001 - a defect of ours, of one row: the others are written without it
                finish = partial(_write_and_answer, self._spool)
        for one in pending:
            finish(one)


def _answer(pending: _Pending) -> None:
    _call_back(pending, pending.outcome)


def _write_and_answer(spool: PredictionSpool, pending: _Pending) -> None:
    try:
        if pending.row is not None:
            spool.append(pending.row)
    except Exception as defect:  # noqa: BLE001 - ``on_result`` answers E500 and logs it
        _call_back(pending, defect)
    else:
        _call_back(pending, pending.outcome)


def _call_back(pending: _Pending, outcome: Any) -> None:
    try:
        pending.on_result(outcome)
    except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the others of the group their answers
        _log.exception("answer.failed")
