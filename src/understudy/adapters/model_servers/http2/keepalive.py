"""Finds a peer that is silent: a ping now and then, and the end of a connection on which nothing follows it."""

import asyncio

from understudy.adapters.model_servers.http2.connection import Http2Connection

INTERVAL_SECONDS = 330.0
"""A default server of gRPC answers pings more often than every five minutes with GOAWAY too_many_pings."""
ANSWER_SECONDS = 5.0


class Keepalive:
    """Watches the connection of a channel while calls are in flight, as gRPC's library does."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        interval_seconds: float = INTERVAL_SECONDS,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._loop = loop
        self._interval_seconds = interval_seconds
        self._answer_seconds = answer_seconds
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: Http2Connection) -> None:
        """Watch a connection instead of the one before."""
        self.stop()
        self._timer = self._loop.call_later(self._interval_seconds, self._ask, connection)

    def stop(self) -> None:
        """Watch none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def relax(self) -> None:
        """Ask half as often: the server says that it was asked too often (gRPC's keepalive proposal, A8)."""
        self._interval_seconds *= 2

    def _ask(self, connection: Http2Connection) -> None:
        if not connection.in_flight:
            self.start(connection)
            return
        connection.ping()
        self._timer = self._loop.call_later(self._answer_seconds, self._judge, connection, self._loop.time())

    def _judge(self, connection: Http2Connection, asked_at: float) -> None:
        if connection.heard_at < asked_at:
            connection.end("the peer does not answer a ping")
        else:
            self.start(connection)
