"""A call's stream on a connection: what is still to be sent, and the answer as it comes."""

from understudy.adapters.http2.ended_streams import MORE_THAN_ITS_WINDOW
from understudy.adapters.http2.frames import DEFAULT_WINDOW, ConnectionFault, ErrorCode
from understudy.adapters.model_servers.channels import MAX_ANSWER_BYTES
from understudy.adapters.model_servers.http2 import failures
from understudy.adapters.model_servers.http2.answer_head import AnswerHead
from understudy.adapters.model_servers.http2.call import Outcome, UnaryCall

PREFIX_BYTES = 5
MAX_PADDING_BYTES = 256
"""Of one frame."""
ROOM_BYTES = 16_384
"""What a server may send beyond its answer, as padding, before it is allowed more."""
_INFORMATIONAL = range(100, 200)


class Stream:
    """One stream. What it returns ends the call: a failure, or at the stream's end its outcome."""

    __slots__ = ("_answer", "_http_status", "_length", "call", "may_send", "number", "opening", "unsent", "window")
    closing = b""
    """The last part of the request ends the stream."""

    def __init__(self, number: int, call: UnaryCall, window: int) -> None:
        self.number = number
        self.call = call
        self.window = window
        """Bytes that the server still takes on this stream."""
        self.opening = b""
        """The request's header, where it was not sent yet."""
        self.unsent = memoryview(b"")
        """What is left of the request."""
        self.may_send = DEFAULT_WINDOW
        """Bytes that the server may still send on this stream."""
        self._http_status: int | None = None
        self._answer: bytes | bytearray = b""
        self._length: int | None = None
        """Of the answer, as it was announced."""

    @property
    def is_begun(self) -> bool:
        """Whether the answer's header has come."""
        return self._http_status is not None

    def take_data(self, payload: bytes, frame_bytes: int) -> Exception | None:
        """Take a part of the answer, which came in a frame of so many bytes.

        Raises:
            ConnectionFault: It is more than the server was allowed to send.
        """
        self.may_send -= frame_bytes
        if self.may_send < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, MORE_THAN_ITS_WINDOW)
        if self._http_status is None:
            return failures.malformed("the answer has a message before its header")
        self._add(payload)
        if self._length is None and len(self._answer) >= PREFIX_BYTES:
            self._length = int.from_bytes(self._answer[1:PREFIX_BYTES])
            if self._answer[0]:
                return failures.compressed()
            if self._length > MAX_ANSWER_BYTES:
                return failures.too_long(self._length)
        if self._length is not None and len(self._answer) > self._length + PREFIX_BYTES:
            return failures.malformed("the answer has more than one message")
        return None

    def room(self) -> int:
        """Return how many bytes more the server is to be allowed: what it announced, with some room for padding."""
        if self._length is None:
            return 0
        missing = self._length + PREFIX_BYTES - len(self._answer)
        if not missing or self.may_send >= missing + MAX_PADDING_BYTES:
            return 0
        more = missing + ROOM_BYTES - self.may_send
        self.may_send += more
        return more

    def take_head(self, head: AnswerHead) -> Exception | None:
        """Take a header block that does not end the stream."""
        if head.http_status in _INFORMATIONAL:
            return None
        if self._http_status is not None:
            return failures.malformed("the answer has a second header")
        if head.http_status is None:
            return failures.malformed("the answer's header has no status")
        self._http_status = head.http_status
        return None if head.http_status == failures.HTTP_OK else failures.of_http(head.http_status)

    def end(self, head: AnswerHead) -> Outcome:
        """Return what the call ended with, by the header block that ended the stream."""
        http_status = head.http_status if self._http_status is None else self._http_status
        failure = failures.ended_with(head, http_status)
        if failure is not None:
            return failure
        is_whole = self._length is not None and len(self._answer) == self._length + PREFIX_BYTES
        if not is_whole:
            return None
        return bytes(memoryview(self._answer)[PREFIX_BYTES:])

    def _add(self, payload: bytes) -> None:
        if not self._answer:
            self._answer = payload
            return
        if isinstance(self._answer, bytes):
            self._answer = bytearray(self._answer)
        self._answer += payload
