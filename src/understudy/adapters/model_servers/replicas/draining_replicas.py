"""Connection draining: calls at replicas that have left their version end by themselves, then channels are closed."""

import asyncio

from understudy.adapters.model_servers.replicas.replica import Replica
from understudy.background.tasks import end_tasks

GRACE_SECONDS = 0.5
"""A call that chose the replica just before it left may be sent after a probe or a pause, and counts only then: for so
long a replica without calls is kept."""
LOOK_SECONDS = 0.5
MAX_DRAIN_SECONDS = 120.0
"""The longest that a channel stays open for calls under way: no call takes longer."""


class DrainingReplicas:
    """The replicas that get no more calls, and are not closed yet."""

    def __init__(self) -> None:
        self._tasks: dict[Replica, asyncio.Task[None]] = {}

    @property
    def in_flight(self) -> int:
        """Calls that have not ended at replicas that have left."""
        return sum(replica.in_flight for replica in self._tasks)

    def add(self, replica: Replica) -> None:
        """Close a replica once its calls have ended."""
        task = self._tasks[replica] = asyncio.create_task(self._close_when_idle(replica))
        task.add_done_callback(lambda _: self._tasks.pop(replica, None))

    async def close(self) -> None:
        """Close all at once; calls in flight fail."""
        replicas = tuple(self._tasks)
        for replica in replicas:
            replica.is_closed = True
        await end_tasks(self._tasks.values())
        for replica in replicas:
            await replica.close()

    async def _close_when_idle(self, replica: Replica) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        for _ in range(int(MAX_DRAIN_SECONDS / LOOK_SECONDS)):
            if not replica.in_flight:
                break
            await asyncio.sleep(LOOK_SECONDS)
        replica.is_closed = True
        await replica.close()
