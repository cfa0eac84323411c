"""Calls over HTTP/1.1 to one replica, with the few methods of a gRPC channel that load balancing needs.

So retries, hedging, outlier ejection and probes hold here, too. Addresses come judged, and no name is resolved again;
no redirect is followed, no cookie kept, nothing decompressed, and no proxy of the environment is asked.
"""

import asyncio
from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from understudy.adapters.model_servers.addresses import Metadata, Wire
from understudy.adapters.model_servers.channels import Channel
from understudy.adapters.model_servers.http.answer_reader import HttpAnswer
from understudy.adapters.model_servers.http.connection import HttpConnection
from understudy.adapters.model_servers.http.pool import ConnectionPool
from understudy.adapters.model_servers.http_failures import HttpCallFailed, broken, failure_of_status, late
from understudy.adapters.model_servers.replicas.call_tasks import is_cancelled, retrieve_exception
from understudy.adapters.model_servers.status import closed
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.errors import BackendUnavailable

T = TypeVar("T")

STATUS_DIGITS = 3
_READINESS = frozenset({*range(200, 300), 400, 404, 405, 415, 422, 503})
"""Statuses that are an answer to whether a version is served, and no failure of the question."""


def open_http(endpoint: str, target: Target, addresses: Sequence[Address], wire: Wire) -> Channel:
    """Return a channel to an endpoint that speaks HTTP; its connections open as calls need them.

    Raises:
        BackendUnavailable: Its name cannot be a header, or the authorities of its TLS cannot be read.
    """
    if not endpoint.isascii() or not endpoint.isprintable():
        raise BackendUnavailable("an endpoint over HTTP has a name in ASCII (IDNA)")
    return HttpChannel(endpoint, ConnectionPool(target, addresses, wire.tls))


class HttpChannel:
    """The calls to one replica. A method is ``POST /path`` or ``GET /path``; a call's bytes are the JSON body.

    What a GET returns, which only asks whether a version is served, is the status in three digits and then the body.
    """

    def __init__(self, endpoint: str, pool: ConnectionPool) -> None:
        self._endpoint = endpoint
        self._pool = pool
        self._calls: set[HttpCall] = set()
        self._is_closed = False
        self._drained: asyncio.Future[None] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the last connection that was needed could be made."""
        return self._pool.was_reached and not self._is_closed

    def method(self, name: str) -> "HttpMethod":
        """Return what sends calls of a method."""
        return HttpMethod(self, self._pool, name, self._endpoint)

    async def close(self, grace_seconds: float | None = None) -> None:
        """Take no more calls, and end those in flight, if need be after a grace."""
        self._is_closed = True
        if self._calls and grace_seconds:
            self._drained = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._drained,), timeout=grace_seconds)
        for call in tuple(self._calls):
            call.end_with_channel()
        self._pool.close()

    def enter(self, call: "HttpCall") -> None:
        """Count a call in.

        Raises:
            BackendUnavailable: The channel is closed.
        """
        if self._is_closed:
            raise closed()
        self._calls.add(call)

    def leave(self, call: "HttpCall") -> None:
        """Count a call out."""
        self._calls.discard(call)
        if self._drained is not None and not self._calls and not self._drained.done():
            self._drained.set_result(None)


class HttpMethod:
    """Sends calls of one method: the head of a request is made once."""

    def __init__(self, channel: HttpChannel, pool: ConnectionPool, name: str, endpoint: str) -> None:
        self._channel = channel
        self._pool = pool
        self._is_question = name.startswith("GET ")
        head = (
            f"{name} HTTP/1.1\r\nhost: {endpoint}\r\nuser-agent: understudy\r\naccept: application/json\r\n"
            "accept-encoding: identity\r\n"
        )
        self._head = head.encode("ascii")

    def __call__(
        self, request: bytes, *, timeout: float, metadata: Metadata, wait_for_ready: bool = False
    ) -> "HttpCall":
        """Return the call; a connection that cannot be made at once is not waited for."""
        del wait_for_ready
        head = self._head
        if metadata:
            # What callers sent, of a trace, is among them.
            fields = [f"{name}: {value}\r\n" for name, value in metadata if value.isprintable()]
            head += "".join(fields).encode("latin-1", errors="replace")
        if self._is_question:
            return HttpCall(self._channel, self._pool, head + b"\r\n", timeout, is_question=True)
        head += b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(request)
        return HttpCall(self._channel, self._pool, head + request, timeout, is_question=False)


class HttpCall:
    """One call: its connection is found or opened, the request sent, and the answer awaited until its time is over.

    It runs in the task that awaits it, and raises ``HttpCallFailed`` there. :meth:`cancel` ends what it waits for, and
    the connection with it: HTTP/1.1 has no other way to give an answer up.
    """

    __slots__ = (
        "_channel",
        "_is_ended",
        "_is_given_up",
        "_is_late",
        "_is_question",
        "_pool",
        "_request",
        "_step",
        "_timeout_seconds",
    )

    def __init__(
        self, channel: HttpChannel, pool: ConnectionPool, request: bytes, timeout_seconds: float, *, is_question: bool
    ) -> None:
        self._channel = channel
        self._pool = pool
        self._request = request
        self._timeout_seconds = timeout_seconds
        self._is_question = is_question
        self._step: asyncio.Future[Any] | None = None
        """What is waited for now."""
        self._is_given_up = False
        self._is_late = False
        self._is_ended = False

    def __await__(self) -> Generator[Any, None, bytes]:
        """Return the answer's body."""
        return self._run().__await__()

    def cancel(self) -> bool:
        """See ``Call``. A call between two of its steps is not answered yet: it waits for none of the next ones."""
        if self._is_answered:
            return False
        self._is_given_up = True
        if self._step is not None:
            self._step.cancel()
        return True

    def end_with_channel(self) -> None:
        """End the call as its channel is closed."""
        self._is_ended = True
        self.cancel()

    @property
    def _is_answered(self) -> bool:
        step = self._step
        if step is None or not step.done() or step.cancelled() or step.exception() is not None:
            return False
        return isinstance(step.result(), HttpAnswer)

    async def _run(self) -> bytes:
        self._channel.enter(self)
        timer = asyncio.get_running_loop().call_later(self._timeout_seconds, self._time_is_over)
        try:
            status, body = await self._exchange()
        except asyncio.CancelledError:
            if is_cancelled() or not (self._is_late or self._is_ended):
                raise
            raise (late() if self._is_late else closed()) from None
        finally:
            timer.cancel()
            self._channel.leave(self)
        if self._is_question and status in _READINESS:
            return b"%03d" % status + body
        if not 200 <= status < 300:  # noqa: PLR2004 - RFC 9110, section 15.3
            raise failure_of_status(status, body)
        return body

    async def _exchange(self) -> HttpAnswer:
        """Ask on a connection that was kept, and once more, on a new one, if the server had closed that one."""
        kept = self._pool.kept() or await self._place()
        answer = None if kept is None else await self._ask_on_kept(kept)
        if answer is not None:
            return answer
        made = await self._dialled()
        try:
            return await self._ask(made)
        finally:
            self._pool.release(made)

    async def _ask_on_kept(self, kept: HttpConnection) -> HttpAnswer | None:
        """Return the answer; ``None``: there is none, and the connection's place is this call's to open another in."""
        has_place = False
        try:
            if kept.is_quiet:
                return await self._ask(kept)
            has_place = True
        except HttpCallFailed:
            has_place = not kept.is_answered
            if not has_place:
                raise
        finally:
            if not has_place:
                self._pool.release(kept)
        kept.abort()
        return None

    async def _place(self) -> HttpConnection | None:
        place = self._pool.place(beyond=self._is_question)
        try:
            return await self._wait(place)
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # given in the same moment
                self._pool.release(place.result())
            raise

    async def _dialled(self) -> HttpConnection:
        """Return a new connection, in the place that this call has."""
        dialling = asyncio.ensure_future(self._pool.dial())
        dialling.add_done_callback(retrieve_exception)
        try:
            return await self._wait(dialling)
        except BaseException:
            is_made = dialling.done() and not dialling.cancelled() and dialling.exception() is None
            self._pool.release(None)
            if is_made:
                dialling.result().abort()
            raise

    async def _ask(self, connection: HttpConnection) -> HttpAnswer:
        try:
            if not connection.is_usable:
                raise broken("closed before the request")
            return await self._wait(connection.ask(self._request))
        except asyncio.CancelledError:
            connection.abort()
            raise

    async def _wait(self, step: "asyncio.Future[T]") -> T:
        self._step = step
        if self._is_given_up:
            step.cancel()
        return await step

    def _time_is_over(self) -> None:
        self._is_late = True
        self.cancel()
