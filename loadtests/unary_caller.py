"""A caller over gRPC who asks on time, by the product's own client."""

import asyncio

from loadtests.grpc_load import INFER, REQUESTS, open_client
from loadtests.open_loop import PATIENCE_SECONDS, Done


class UnaryCaller:
    """Calls ``ModelInfer``, each time for an entity of its own; see :class:`.open_loop.Caller`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._under_way: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect, which the first call does."""
        self._channel = open_client(self._address)
        self._method = self._channel.method(INFER)
        await self._call(0)

    def ask(self, number: int, done: Done) -> None:
        """Send a call now."""
        task = asyncio.get_running_loop().create_task(self._call(number))
        self._under_way.add(task)
        task.add_done_callback(lambda one: self._end(one, done))

    def close(self) -> None:
        """Disconnect."""
        self._closing = asyncio.get_running_loop().create_task(self._channel.close())

    async def _call(self, number: int) -> None:
        requests = REQUESTS[INFER]
        entity = (("x-entity-id", f"steady-{number}"),)
        await self._method(requests[number % len(requests)], timeout=PATIENCE_SECONDS, metadata=entity)

    def _end(self, task: "asyncio.Task[None]", done: Done) -> None:
        self._under_way.discard(task)
        problem = None if task.cancelled() else task.exception()
        done("cancelled" if task.cancelled() else None if problem is None else str(problem))
