"""Reads one answer of HTTP/1.1 as its bytes come, and refuses one that is too long, compressed or not what it says."""

from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.http_failures import HttpCallFailed, broken, not_http, not_taken_as_it_is

MAX_HEAD_BYTES = 65_536
"""Of an answer's status line and headers, those of interim answers included, and between two parts of its body."""
MAX_WIRE_BYTES = 2 * MAX_ANSWER_BYTES + MAX_HEAD_BYTES
"""Of an answer as it comes, with the sizes of its chunks."""
MAX_LENGTH_DIGITS = 12
_FIRST_STATUS = 100
_FIRST_FINAL_STATUS = 200
_WITHOUT_BODY = frozenset({204, 304})
"""Statuses whose answers have no body, whatever their head says: where one has, it would be read as the next answer."""


class HttpAnswer(NamedTuple):
    """A whole answer, whatever its status."""

    status: int
    body: bytes


class AnswerReader:
    """One answer. Its methods ``on_…`` are the parser's callbacks.

    An answer ends with the length or the chunks that its head announces, or else with the connection.
    """

    def __init__(self) -> None:
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        """Until the answer is whole, or refused: it refers back here, and a circle is freed late."""
        self._failure: HttpCallFailed | None = None
        self._body = bytearray()
        self._wire_bytes = 0
        self._bytes_aside = 0
        """That came since the last part of the body: of its head, of a chunk's extension, of the trailers."""
        self._status = 0
        self._is_head_read = False
        self._has_end = False
        self._is_whole = False
        self.is_begun = False
        """Whether any byte of it has come."""
        self.is_last = True
        """Whether the connection ends with it, or has to."""

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take more bytes, and return the answer once it is whole.

        Raises:
            HttpCallFailed: It cannot be read, or is not read.
        """
        try:
            answer = self._fed(data)
        except HttpCallFailed:
            self._forget()
            raise
        if answer is not None:
            self._forget()
        return answer

    def _fed(self, data: bytes) -> HttpAnswer | None:
        assert self._parser is not None
        self.is_begun = True
        self._wire_bytes += len(data)
        self._bytes_aside += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise not_http("it changes to another protocol") from None
        except HttpParserError as problem:
            raise self._failure or not_http("it is longer than it says" if self._is_whole else str(problem)) from None
        if self._failure is not None:
            raise self._failure
        if self._is_whole:
            return HttpAnswer(self._status, bytes(self._body))
        if self._bytes_aside > MAX_HEAD_BYTES:
            place = "between the parts of its body" if self._is_head_read else "its head"
            raise not_http(f"{place} has more than {MAX_HEAD_BYTES:,} bytes")
        if self._wire_bytes > MAX_WIRE_BYTES:
            raise not_http("its chunks are more than what is in them")
        return None

    def _forget(self) -> None:
        self._parser = None
        self._body = bytearray()

    def end(self, error: str = "") -> HttpAnswer:
        """Return the answer that ends as its connection does.

        Raises:
            HttpCallFailed: It was to be longer, or there was none, or the connection broke by an ``error``.
        """
        if error or self._has_end or not self._is_head_read:
            raise broken(error or ("the answer ended early" if self.is_begun else "closed without an answer"))
        self.is_last = True
        return HttpAnswer(self._status, bytes(self._body))

    # -- the parser's ----------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Another answer begins: after an interim one, or without having been asked for."""
        if self._is_whole:
            self._failure = not_http("it is longer than it says")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note what decides how the body is read."""
        field = name.lower()
        if field == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            self._failure = not_taken_as_it_is("an answer that is compressed, which was not asked for")
        elif field == b"content-length":
            self._has_end = True
            if len(value) > MAX_LENGTH_DIGITS or int(value) > MAX_ANSWER_BYTES:
                self._failure = _too_long()
        elif field == b"transfer-encoding":
            self._has_end = True
            if value.strip().lower() != b"chunked":
                self._failure = not_http("its transfer encoding is not chunked")

    def on_headers_complete(self) -> None:
        """Keep the status, and whether the connection may be used again."""
        assert self._parser is not None
        self._status = self._parser.get_status_code()
        self._is_head_read = self._status >= _FIRST_FINAL_STATUS
        self.is_last = self._status in _WITHOUT_BODY or not self._parser.should_keep_alive()
        if self._status < _FIRST_STATUS:
            self._failure = not_http("its status is none")

    def on_body(self, body: bytes) -> None:
        """Keep a part of the body."""
        self._bytes_aside = 0
        if self._failure is not None:
            return
        if len(self._body) + len(body) > MAX_ANSWER_BYTES:
            self._failure = _too_long()
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """The answer is whole, unless it is an interim one (``100 Continue``)."""
        self._is_whole = self._is_head_read


def _too_long() -> HttpCallFailed:
    return not_taken_as_it_is(f"an answer of more than {MAX_ANSWER_BYTES:,} bytes")
