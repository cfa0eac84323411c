"""Graceful shutdown: uvicorn's server, ending without a lost request.

uvicorn itself closes every connection without a request at once: a request that is on its way then, or that has arrived
and was not read yet, is answered by a reset. It also keeps connections that it accepted in its last turn, and breaks
them off at the end.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import uvicorn

from understudy.entrypoints.proxy.server.admission import TLS
from understudy.entrypoints.proxy.server.backpressure import is_any_readable
from understudy.entrypoints.proxy.server.connection import DRAINING, Connection

BESIDE = "understudy.beside"
"""Key of the :class:`Beside` in the server's state, where there is one."""
LEAVING = "understudy.leaving"
"""Set in the server's state once it drains and no other process listens on its socket: ``/readyz`` says so."""
CHECK_SECONDS = 0.05
QUIET_SECONDS = 0.5
"""How long no request may have come before a server that listens alone stops listening."""
TICK_SECONDS = 0.1
MAX_END = 5
"""In drains: after that the process sends no heartbeat any more, and its arbiter may take it for hung."""
_MAX_ACCEPT_TURNS = 100


class Beside(Protocol):
    """What answers callers of this process on another port."""

    async def drain(self, seconds: float, *, is_alone: bool) -> None:
        """Be ready no longer and answer what comes meanwhile, as the server does; then take nothing more, and return.

        Args:
            seconds: Longest time, and again of what is then under way: the application's end waits for that.
            is_alone: Whether no other process listens there; if one does, nothing more is taken from now on.
        """


class GracefulServer(uvicorn.Server):
    """Announces the end with each answer, gives kept connections time for a last request, then closes.

    While it waits it goes on accepting if no other process listens on its sockets: the load balancer learns of the end
    by ``/readyz`` or by a refused connection, and needs a moment for that. Sockets that other processes share are left
    to them at once; connections that are not accepted yet stay in the shared accept queue.

    Args:
        config: As uvicorn's.
        drain_seconds: Longest wait for kept connections; calls under way then have uvicorn's own time.
        is_alone: Whether no other process listens on its sockets; asked when the shutdown begins.
        on_drain: Called when the shutdown begins.
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
        """When there last was a connection or an answer, in the event loop's time."""
        self._answered = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen for plain connections; those that speak TLS begin it once they are admitted (``admission.py``)."""
        self._tls, self.config.ssl = self.config.ssl, None
        if self._tls is not None:
            self.lifespan.state[TLS] = self._tls
        await super().startup(sockets)

    def _log_started_message(self, listeners: Sequence[socket.SocketType]) -> None:
        self.config.ssl = self._tls  # the message names the scheme
        super()._log_started_message(listeners)

    async def on_tick(self, counter: int) -> bool:
        """Also note when there were callers."""
        answered = self.server_state.total_requests
        if self.server_state.connections or answered != self._answered:
            self._busy_at, self._answered = asyncio.get_running_loop().time(), answered
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, and then shut down as uvicorn does: wait for calls under way, close what the application opened."""
        ticking = asyncio.create_task(self._tick())
        try:
            is_alone = self._is_alone()
            beside: Beside | None = self.lifespan.state.get(BESIDE)
            if beside is None:
                await self._drain(sockets or [], is_alone=is_alone)
            else:
                await asyncio.gather(
                    self._drain(sockets or [], is_alone=is_alone),
                    beside.drain(self._drain_seconds, is_alone=is_alone),
                )
            await super().shutdown(sockets)
        finally:
            ticking.cancel()
            with suppress(asyncio.CancelledError):
                await ticking

    async def _tick(self) -> None:
        """Go on with uvicorn's ticks: gunicorn takes a worker without a heartbeat for hung."""
        for counter in range(round((MAX_END * self._drain_seconds) / TICK_SECONDS)):
            await self.on_tick(counter)
            await asyncio.sleep(TICK_SECONDS)

    async def _drain(self, sockets: Iterable[socket.socket], *, is_alone: bool) -> None:
        self._on_drain()
        self.lifespan.state[DRAINING] = True  # of connections that are made from now on
        if is_alone:
            self.lifespan.state[LEAVING] = True
        else:
            self._stop_listening(sockets)
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.drain()
        await self._wait_for_last_requests(is_alone=is_alone)
        await self._accept_rest()

    async def _wait_for_last_requests(self, *, is_alone: bool) -> None:
        """Wait until no connection is left, nor any is expected; at most as long as a drain may last."""
        clock = asyncio.get_running_loop().time
        give_up = clock() + self._drain_seconds
        while clock() < give_up and not self.force_exit:
            is_quiet = not is_alone or clock() - self._busy_at >= QUIET_SECONDS
            if not self.server_state.connections and is_quiet:
                return
            await asyncio.sleep(min(CHECK_SECONDS, max(0.0, give_up - clock())))

    async def _accept_rest(self) -> None:
        """Let the event loop accept what is in the accept queue: closing the socket would reset it."""
        for _ in range(_MAX_ACCEPT_TURNS):
            if not self._is_connection_queued():
                return
            await asyncio.sleep(0)

    def _is_connection_queued(self) -> bool:
        return is_any_readable(*(one.fileno() for server in self.servers for one in server.sockets))

    def _stop_listening(self, sockets: Iterable[socket.socket]) -> None:
        for server in self.servers:
            server.close()
        for one in sockets:
            one.close()
