"""Group commit that answers a call only when its row survives a power cut: one sync for all that wait for it.

While the disk syncs one group, the rows of the next turns gather, and the next sync is theirs all together.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from understudy.ports.prediction_log.prediction_log import DurableSpool
from understudy.serving.prediction_log.group_commit import GroupCommit, Pending


class DurableCommit(GroupCommit):
    """Writes the rows of a turn, has them synced, and gives the answers then.

    Args:
        spool: Where the rows go.
        refused: As for :class:`GroupCommit`, also of a call whose row could not be synced in time.
        wait_seconds: Longest wait for a sync; over it a call is answered, or refused, all the same.
        on_late: Counts a group whose sync took longer.
    """

    def __init__(
        self,
        spool: DurableSpool,
        refused: Callable[[Any], Any] | None = None,
        *,
        wait_seconds: float,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(spool, refused)
        self._durable = spool
        self._wait_seconds = wait_seconds
        self._on_late = on_late
        self.decides = True

    def flush(self) -> None:
        """Write the rows that are pending, and give the answers when they are synced."""
        held: list[Pending] = []
        for one in self._write_pending():
            if one.row is None:
                one.answer()
            else:
                held.append(one)
        if held:
            self._hold(held)

    def _hold(self, held: list[Pending]) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._wait_seconds, self._give_late, held)

        def give(is_synced: bool) -> None:  # noqa: FBT001 - the port's callback
            timer.cancel()
            self._give(held, is_synced=is_synced)

        def tell(is_synced: bool) -> None:  # noqa: FBT001 - as above
            with suppress(RuntimeError):  # the event loop has ended, and with it the connections
                loop.call_soon_threadsafe(give, is_synced)

        self._durable.sync(tell)

    def _give_late(self, held: list[Pending]) -> None:
        self._on_late()
        self._give(held, is_synced=False)

    def _give(self, held: list[Pending], *, is_synced: bool) -> None:
        """Answer those that were not answered yet."""
        group = held.copy()
        held.clear()
        for one in group:
            (one if is_synced else self._without_row(one)).answer()
