"""Replicas that have left their version: their calls under way end by themselves, then their channels are closed."""

import asyncio

from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.background.tasks import end_tasks

CHOSEN_SECONDS = 0.5
"""A call may have been chosen for a replica just before it left, and be sent after a probe or a pause: none so late."""
LOOK_SECONDS = 0.5
MAX_LOOKS = 240
"""Two minutes, the longest that a channel stays open for calls under way: no call takes longer."""


class Departures:
    """The replicas that get no more calls, and are not closed yet."""

    def __init__(self) -> None:
        self._leaving: dict[Replica, asyncio.Task[None]] = {}

    @property
    def in_flight(self) -> int:
        """Calls that have not ended at replicas that have left."""
        return sum(replica.in_flight for replica in self._leaving)

    def add(self, replica: Replica) -> None:
        """Close a replica once its calls have ended."""
        task = self._leaving[replica] = asyncio.create_task(self._close_when_idle(replica))
        task.add_done_callback(lambda _: self._leaving.pop(replica, None))

    async def close(self) -> None:
        """Close all at once; calls in flight fail."""
        replicas = tuple(self._leaving)
        for replica in replicas:
            replica.is_closed = True
        await end_tasks(self._leaving.values())
        for replica in replicas:
            await replica.close()

    async def _close_when_idle(self, replica: Replica) -> None:
        await asyncio.sleep(CHOSEN_SECONDS)
        for _ in range(MAX_LOOKS):
            if not replica.in_flight:
                break
            await asyncio.sleep(LOOK_SECONDS)
        replica.is_closed = True
        await replica.close()
