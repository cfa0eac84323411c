"""Group commit: the rows of calls that end in one turn of the event loop are one write to the spool, before any answer.

Source:
    The term and the idea are the databases' (J. Gray and A. Reuter, *Transaction Processing*, 1993): a call that waits
    for its own row waits for a few others, which costs one write instead of several.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from understudy.core.routing.policy import Role
from understudy.ports.prediction_log.prediction_log import PredictionSpool
from understudy.serving.call import Call

Settle: TypeAlias = Callable[[Sequence[Call]], None]
"""Answers calls whose rows are written. Each call is in one group; must not raise."""


class GroupCommit:
    """Writes the rows of calls that ended together, and has them answered then.

    Args:
        spool: Where the rows go.
        refuse: Takes back the answer of a call whose row was dropped. ``None``: such a call is answered all the same.
    """

    def __init__(self, spool: PredictionSpool, refuse: Callable[[Call], None] | None = None) -> None:
        self._spool = spool
        self._refuse = refuse

    def commit(self, ended: Sequence[Call], settle: Settle) -> None:
        """Write the rows of calls at once, and then have them answered."""
        self._write(ended)
        settle(ended)

    def _write(self, ended: Sequence[Call]) -> None:
        """Write the rows; calls whose rows are not written have none from then on."""
        with_row = [call for call in ended if call.log_row is not None]
        rows = [call.log_row for call in ended if call.log_row is not None]
        if not rows:
            return
        try:
            dropped = self._spool.append_all(rows)
        except Exception:  # noqa: BLE001 - a defect of ours, of one row: the others are written without it
            for call in with_row:
                self._write_alone(call)
        else:
            for place in dropped:
                self._without_row(with_row[place])

    def _write_alone(self, call: Call) -> None:
        assert call.log_row is not None
        try:
            if not self._spool.append(call.log_row):
                self._without_row(call)
        except Exception as defect:  # noqa: BLE001 - its caller is answered E500, and that logs it
            call.log_row, call.defect = None, defect

    def _without_row(self, call: Call) -> None:
        call.log_row = None
        if self._refuse is not None and call.role is not Role.SHADOW:
            self._refuse(call)
