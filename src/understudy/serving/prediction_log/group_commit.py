"""Group commit: the rows of calls that end in one turn of the event loop are one write to the spool, before any answer.

Source:
    The term and the idea are the databases' (J. Gray and A. Reuter, *Transaction Processing*, 1993): a call that waits
    for its own row waits for a few others, which costs one write instead of several.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from understudy.core.prediction_log.row import PredictionRow
from understudy.core.value import Value
from understudy.ports.prediction_log.prediction_log import PredictionSpool

_log = structlog.get_logger(__name__)


class Pending(Value, frozen=True):
    """A call that is answered when its row is written, or with what kept it from being written."""

    row: PredictionRow | None
    """``None`` for a call that leaves none, or whose row is not on the disk."""
    on_result: Callable[[Any], None]
    outcome: Any

    def answer(self) -> None:
        """Give the call its outcome."""
        try:
            self.on_result(self.outcome)
        except Exception:  # noqa: BLE001 - a defect of ours: it must not cost the others of the group their answers
            _log.exception("answer.failed")


class GroupCommit:
    """Writes the rows of calls that are answered by callback at the end of the turn, and gives the answers then.

    Args:
        spool: Where the rows go.
        refused: Makes the outcome of a call whose row was dropped. ``None``: such a call is answered all the same.
    """

    def __init__(self, spool: PredictionSpool, refused: Callable[[Any], Any] | None = None) -> None:
        self._spool = spool
        self._refused = refused
        self._pending: list[Pending] = []
        self.decides = refused is not None
        """Whether a call's outcome depends on its row: then it comes from :meth:`logged`, or by :meth:`commit`."""

    def append(self, row: PredictionRow) -> None:
        """Write the row of a call that is not answered by callback, at once."""
        self._spool.append(row)

    async def logged(self, row: PredictionRow, outcome: Any) -> Any:
        """Write a row with those of this turn, and return the call's outcome, or that it is refused.

        Raises:
            Exception: A defect of the write.
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.commit(row, partial(_settle, answered), outcome)
        found = await answered
        if isinstance(found, Exception):
            raise found
        return found

    def commit(self, row: PredictionRow | None, on_result: Callable[[Any], None], outcome: Any) -> None:
        """Write a row at the end of the turn, and then call ``on_result``: with the outcome, or a defect of the write.

        Args:
            row: ``None`` for a call that leaves none.
            on_result: Takes the outcome or an exception; must not raise.
            outcome: What became of the call.
        """
        if not self._pending:
            asyncio.get_running_loop().call_soon(self.flush)
        self._pending.append(Pending(row, on_result, outcome))

    def flush(self) -> None:
        """Write the rows that are pending, and then give the answers."""
        for one in self._write_pending():
            one.answer()

    def _write_pending(self) -> list[Pending]:
        """Write the rows that are pending; return the calls with what they are answered, without rows not written."""
        pending, self._pending = self._pending, []
        rows = [one.row for one in pending if one.row is not None]
        if not rows:
            return pending
        try:
            dropped = self._spool.append_all(rows)
        except Exception:  # noqa: BLE001 - a defect of ours, of one row: the others are written without it
            return [self._write(one) for one in pending]
        if not dropped:
            return pending
        lost = {id(rows[place]) for place in dropped}
        return [self._without_row(one) if id(one.row) in lost else one for one in pending]

    def _write(self, one: Pending) -> Pending:
        try:
            is_written = one.row is None or self._spool.append(one.row)
        except Exception as defect:  # noqa: BLE001 - ``on_result`` answers E500 and logs it
            return Pending(None, one.on_result, defect)
        return one if is_written else self._without_row(one)

    def _without_row(self, one: Pending) -> Pending:
        outcome = one.outcome if self._refused is None else self._refused(one.outcome)
        return Pending(None, one.on_result, outcome)


def _settle(answered: "asyncio.Future[Any]", found: Any) -> None:
    if not answered.done():  # its caller may be gone
        answered.set_result(found)
