"""Group commit that answers a call only when its row survives a power cut: one sync for all that wait for it.

While the disk syncs one group, the rows of the next turns gather, and the next sync is theirs all together.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from understudy.core.routing.policy import Role
from understudy.ports.prediction_log.prediction_log import DurableSpool
from understudy.serving.call import Call
from understudy.serving.prediction_log.group_commit import GroupCommit, Settle


class DurableCommit(GroupCommit):
    """Writes the rows of calls that ended together, has them synced, and has the calls answered then.

    Args:
        spool: Where the rows go.
        refuse: As for :class:`GroupCommit`, also of a call whose row could not be synced in time.
        wait_seconds: Longest wait for a sync; over it a call is answered, or refused, all the same.
        on_late: Counts a group whose sync took longer.
    """

    def __init__(
        self,
        spool: DurableSpool,
        refuse: Callable[[Call], None] | None = None,
        *,
        wait_seconds: float,
        on_late: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(spool, refuse)
        self._durable = spool
        self._wait_seconds = wait_seconds
        self._on_late = on_late

    def commit(self, ended: Sequence[Call], settle: Settle) -> None:
        """Write the rows of calls at once, and have the calls answered when they are synced."""
        self._write(ended)
        held: list[Call] = []
        others: list[Call] = []
        for call in ended:
            # No caller waits for a shadow's row.
            (others if call.log_row is None or call.role is Role.SHADOW else held).append(call)
        settle(others)
        if held:
            self._hold(held, settle)

    def _hold(self, held: list[Call], settle: Settle) -> None:
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._wait_seconds, self._give_late, held, settle)

        def give(is_synced: bool) -> None:  # noqa: FBT001 - the port's callback
            timer.cancel()
            self._give(held, settle, is_synced=is_synced)

        def tell(is_synced: bool) -> None:  # noqa: FBT001 - as above
            with suppress(RuntimeError):  # the event loop has ended, and with it the connections
                loop.call_soon_threadsafe(give, is_synced)

        self._durable.sync(tell)

    def _give_late(self, held: list[Call], settle: Settle) -> None:
        self._on_late()
        self._give(held, settle, is_synced=False)

    def _give(self, held: list[Call], settle: Settle, *, is_synced: bool) -> None:
        """Answer those that were not answered yet."""
        group = held.copy()
        held.clear()
        if not is_synced:
            for call in group:
                self._without_row(call)
        settle(group)
