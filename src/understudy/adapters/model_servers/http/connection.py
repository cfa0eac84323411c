"""One connection of HTTP/1.1 to a model server, with one call on it at a time."""

import asyncio
import select
from typing import cast

from understudy.adapters.model_servers.http.answer_reader import AnswerReader, HttpAnswer
from understudy.adapters.model_servers.http_failures import HttpCallFailed


class HttpConnection(asyncio.Protocol):
    """A connection, and the answer that it waits for.

    What comes beyond an answer, or unasked, belongs to no call: then the connection is not used again.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._reader = AnswerReader()
        self._unread = select.poll()

    @property
    def is_usable(self) -> bool:
        """Whether another call may be sent: it is open, and no answer is awaited."""
        return self._transport is not None and not self._transport.is_closing() and self._waiting is None

    @property
    def is_quiet(self) -> bool:
        """Whether it is usable, and nothing has come that the loop has not read yet: its end, or more than an answer.

        It would be taken for the answer to the next request.
        """
        return self.is_usable and not self._unread.poll(0)

    @property
    def is_answered(self) -> bool:
        """Whether any byte came since the last request."""
        return self._reader.is_begun

    def ask(self, request: bytes) -> "asyncio.Future[HttpAnswer]":
        """Send a request on a usable connection, and return the future of its answer.

        The future raises ``HttpCallFailed``; a cancelled one leaves a connection that is to be aborted.
        """
        assert self._transport is not None
        self._reader = AnswerReader()
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def abort(self) -> None:
        """Close the connection at once: no call waits for what still comes."""
        self._waiting = None
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self._unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        if self._waiting is None:
            self.abort()
            return
        try:
            answer = self._reader.feed(data)
        except HttpCallFailed as failure:
            self._fail(failure)
        else:
            if answer is not None:
                self._pass_on(answer)

    def eof_received(self) -> None:
        """See asyncio."""
        self._ended("")

    def connection_lost(self, error: Exception | None) -> None:
        """See asyncio."""
        self._ended("" if error is None else type(error).__name__)

    def _ended(self, error: str) -> None:
        """The server has closed the connection, or it broke."""
        if self._waiting is None:
            self.abort()
            return
        try:
            answer = self._reader.end(error)
        except HttpCallFailed as failure:
            self._fail(failure)
        else:
            self._pass_on(answer)

    def _pass_on(self, answer: HttpAnswer) -> None:
        waiting, self._waiting = self._waiting, None
        assert self._transport is not None
        # A server that answers before it has read the request would take the rest of it for another one.
        if self._reader.is_last or self._transport.get_write_buffer_size():
            self._transport.abort()
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def _fail(self, failure: HttpCallFailed) -> None:
        waiting = self._waiting
        self.abort()
        if waiting is not None and not waiting.done():
            # Its traceback holds what was read, up to 256 KiB, until the collector of cycles comes by.
            waiting.set_exception(failure.with_traceback(None))
