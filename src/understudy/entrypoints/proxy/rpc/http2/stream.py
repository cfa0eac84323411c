"""One call's stream: its header, its message as it comes, and what is sent back."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from understudy.adapters.http2.frames import ErrorCode
from understudy.entrypoints.proxy.messages.reply import Header
from understudy.entrypoints.proxy.rpc.http2.answer_blocks import (
    CODINGS,
    head_block,
    refusal_block,
    trailers_block,
)
from understudy.entrypoints.proxy.rpc.http2.message import IncomingMessage, Message
from understudy.entrypoints.proxy.rpc.http2.request_head import RequestHead

_OK = 0


class Wire(Protocol):
    """The connection, as a stream uses it."""

    address: str
    """By which its caller is counted."""

    def allow(self, stream: "CallStream") -> None:
        """Allow the caller what is missing of its message."""

    def answer(self, stream: "CallStream", head: bytes, message: bytes, trailers: bytes | None) -> None:
        """Send an answer, or a part of one: without trailers the stream goes on."""

    def end_call(self, stream: "CallStream", block: bytes) -> None:
        """Send the one block that an answer without a message is, or its last one."""

    def reset(self, stream: "CallStream", code: ErrorCode) -> None:
        """End a stream by force, with the call on it."""


class CallStream:
    """One call.

    Args:
        number: The stream's.
        head: What its header says.
        message: Takes its message.
        wire: The connection.
        since: When its header came, by the event loop's clock.
        window: Bytes that the caller takes of its answer at first.
    """

    __slots__ = (
        "answer_coding", "closing", "has_ended", "has_head", "head", "message", "number", "opening", "sent", "since",
        "task", "unsent", "window", "wire",
    )  # fmt: skip

    def __init__(
        self, number: int, head: RequestHead, message: IncomingMessage, wire: Wire, *, since: float, window: int
    ) -> None:
        self.number = number
        self.head = head
        self.message = message
        self.wire = wire
        self.since = since
        self.window = window
        self.opening = b""
        self.unsent = memoryview(b"")
        self.closing: bytes | None = b""
        self.sent: asyncio.Future[None] | None = None
        """Done when a part of an answer that goes on was sent."""
        self.task: asyncio.Task[Any] | None = None
        """Answers it."""
        self.has_ended = False
        """Whether its caller has sent all of the call."""
        self.answer_coding: bytes | None = None
        """Of its answer, where that is long enough; none where its message had none."""
        self.has_head = False
        """Whether an answer has begun."""

    @property
    def address(self) -> str:
        """By which its caller's bytes are counted."""
        return self.wire.address

    def seconds_left(self) -> float | None:
        """Return how long its caller still waits; ``None``: it does not say."""
        seconds = self.head.seconds
        return None if seconds is None else self.since + seconds - asyncio.get_running_loop().time()

    async def read(self, seconds: float, limit_bytes: int | None = None) -> Message:
        """Return its message once that is there, within this bound; raises as :meth:`.IncomingMessage.whole`."""
        if limit_bytes is not None:
            self.message.bound(limit_bytes)
        if not self.message.is_found:
            self.wire.allow(self)
        return await self.message.whole(seconds)

    def accepted_coding(self) -> bytes | None:
        """Return the coding of its message, if its caller takes an answer in it, too."""
        accepted = {one.strip() for one in self.head.accepts.split(b",")}
        return self.head.coding if self.head.coding in CODINGS and self.head.coding in accepted else None

    def answer(self, body: bytes, metadata: Iterable[Header], coding: bytes | None = None) -> None:
        """Send its answer.

        Args:
            body: The message; in this coding.
            metadata: Trailing.
            coding: None: it is not compressed.
        """
        self.wire.answer(self, head_block(coding), _framed(body, coding), trailers_block(_OK, "", metadata))

    def fail(self, code: int, sentence: str, metadata: Sequence[Header]) -> None:
        """End it with a status; behind parts of an answer, too."""
        block = trailers_block(code, sentence, metadata)
        self.wire.end_call(self, block if self.has_head else head_block() + block)

    def refuse(self, http_status: int) -> None:
        """Answer what is no call of gRPC's."""
        self.wire.end_call(self, refusal_block(http_status))

    async def send(self, body: bytes) -> None:
        """Send a part of an answer that goes on, and wait until its caller takes it."""
        head = b"" if self.has_head else head_block()
        sent = self.sent = asyncio.get_running_loop().create_future()
        self.wire.answer(self, head, _framed(body, None), None)
        await sent

    def reset(self) -> None:
        """End it by force: its caller does not take what it asked for."""
        self.wire.reset(self, ErrorCode.CANCEL)

    def forget(self) -> None:
        """End the work on it, and hold none of its message."""
        self.message.abandon()
        task, self.task = self.task, None
        if task is not None:
            task.cancel()


def _framed(body: bytes, coding: bytes | None) -> bytes:
    return (b"\x00" if coding is None else b"\x01") + len(body).to_bytes(4) + body
