"""uvicorn's server, whose process ends without costing anybody a call.

uvicorn itself closes every connection without a request at once: a request that is on its way then, or that has come
and was not read yet, is answered by a reset. It also leaves connections alone that it accepted in its last turn, and
then breaks them off.
"""

import asyncio
import select
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress

import uvicorn

from understudy.entrypoints.proxy.server.connection import DRAINING, Connection

LEAVING = "understudy.leaving"
"""Set in the server's state once it drains and nobody else listens where it does: ``/readyz`` says so."""
LOOK_SECONDS = 0.05
QUIET_SECONDS = 0.5
"""How long nobody may have asked for anything, before a server that listens alone stops doing so."""
TICK_SECONDS = 0.1
MAX_END = 5
"""In drains: after that the process says no more that it turns, and whoever watches may take it for hung."""
_LAST_LOOKS = 100


class GracefulServer(uvicorn.Server):
    """Ends in this order: say so with each answer, wait for those who keep a connection to ask once more, then close.

    While it waits it goes on accepting, if nobody else listens on its sockets: whoever sends it callers learns of its
    end by ``/readyz`` or by a refused connection, and needs a moment for that. What others listen on as well is theirs
    at once; connections that nobody has accepted yet stay in the queue that they share.

    Args:
        config: As uvicorn's.
        drain_seconds: Longest wait for connections that nobody asks on; calls under way have uvicorn's own time then.
        is_alone: Whether nobody else listens on its sockets; asked when it is to end.
        on_drain: Called when it is to end.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        drain_seconds: float,
        is_alone: Callable[[], bool] = lambda: True,
        on_drain: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self._drain_seconds = drain_seconds
        self._is_alone = is_alone
        self._on_drain = on_drain
        self._busy_at = 0.0
        """When somebody was connected or had been answered last, in the event loop's time."""
        self._answered = 0

    async def on_tick(self, counter: int) -> bool:
        """Also note whether there are callers."""
        answered = self.server_state.total_requests
        if self.server_state.connections or answered != self._answered:
            self._busy_at, self._answered = asyncio.get_running_loop().time(), answered
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, and then end as uvicorn does: wait for calls under way, and close what the application has open."""
        ticking = asyncio.create_task(self._tick())
        try:
            await self._drain(sockets or [])
            await super().shutdown(sockets)
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking

    async def _tick(self) -> None:
        """Go on doing what uvicorn does all the time: gunicorn takes a worker for hung that says nothing."""
        for counter in range(round((MAX_END * self._drain_seconds) / TICK_SECONDS)):
            await self.on_tick(counter)
            await asyncio.sleep(TICK_SECONDS)

    async def _drain(self, sockets: Iterable[socket.socket]) -> None:
        self._on_drain()
        is_alone = self._is_alone()
        self.lifespan.state[DRAINING] = True  # of connections that are made from now on
        if is_alone:
            self.lifespan.state[LEAVING] = True
        else:
            self._stop_listening(sockets)
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.drain()
        await self._wait_for_callers(is_alone=is_alone)
        await self._accept_rest()

    async def _wait_for_callers(self, *, is_alone: bool) -> None:
        """Wait until nobody is connected, nor may be about to; as long as a drain may last."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._drain_seconds
        while clock() < give_up and not self.force_exit:
            is_quiet = not is_alone or clock() - self._busy_at >= QUIET_SECONDS
            if not self.server_state.connections and is_quiet:
                return
            await asyncio.sleep(min(LOOK_SECONDS, max(0.0, give_up - clock())))

    async def _accept_rest(self) -> None:
        """Let the event loop accept what waits for that: closing the socket would reset it."""
        for _ in range(_LAST_LOOKS):
            if not self._is_somebody_waiting():
                return
            await asyncio.sleep(0)

    def _is_somebody_waiting(self) -> bool:
        looking = select.poll()
        listening = [one.fileno() for server in self.servers for one in server.sockets]
        for descriptor in listening:
            looking.register(descriptor, select.POLLIN)
        return bool(listening) and bool(looking.poll(0))

    def _stop_listening(self, sockets: Iterable[socket.socket]) -> None:
        for server in self.servers:
            server.close()
        for one in sockets:
            one.close()
