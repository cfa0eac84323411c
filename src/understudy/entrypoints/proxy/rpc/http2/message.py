"""The message of a call as it comes: its length first, its bytes counted, and the call that waits for it told."""

import asyncio
from typing import NamedTuple

from understudy.entrypoints.proxy.overload.body_budget import HeldBody, no_room
from understudy.errors import BodyTooLarge, MalformedBody, NotOffered, Overloaded, RequestTimedOut, UnderstudyError

PREFIX_BYTES = 5
MAX_PADDING_BYTES = 256
"""Of one frame."""
ROOM_BYTES = 16_384
"""What a caller may send beyond its message, as padding, before it is allowed more."""


class Message(NamedTuple):
    """A message that has come."""

    is_compressed: bool
    body: bytes


class IncomingMessage:
    """The one message of a call.

    A message that comes whole in one frame is held by nothing but its call. Pieces of others are counted in the
    process's memory for bodies, and give way there (:class:`.BodyBudget`).

    Args:
        held: Counts pieces.
        limit_bytes: Of the message as it comes.
        window: Bytes that the caller may send at first.
    """

    __slots__ = ("_found", "_is_coming", "_length", "_limit_bytes", "_waiter", "held", "may_send")

    def __init__(self, held: HeldBody, limit_bytes: int, window: int) -> None:
        self.held = held
        """Counts its pieces, and what is made of it."""
        self._limit_bytes = limit_bytes
        self._found: Message | UnderstudyError | None = None
        self._is_coming = False
        """Whether pieces of it are held."""
        self._length: int | None = None
        """Of all of it, with its prefix, as it was announced."""
        self._waiter: asyncio.Future[None] | None = None
        self.may_send = window
        """Bytes that the caller may still send on this stream."""

    @property
    def is_found(self) -> bool:
        """Whether it is there, or will not be."""
        return self._found is not None

    @property
    def is_awaited(self) -> bool:
        """Whether its call waits for it."""
        return self._waiter is not None

    def take(self, payload: bytes) -> None:
        """Take a further piece."""
        if self._found is not None:
            if payload and isinstance(self._found, Message):
                self.fail(NotOffered("the call has more than one message"))
            return
        if not self._is_coming:
            size = len(payload)
            if size >= PREFIX_BYTES and int.from_bytes(payload[1:PREFIX_BYTES]) == size - PREFIX_BYTES:
                self._length = size
                self._end(payload)
                return
            self._is_coming = True
            self.held.begin(lambda: self.fail(no_room("messages")))
        try:
            self.held.append(payload)
        except Overloaded as problem:
            self.fail(problem)
            return
        self._look()

    def end(self) -> None:
        """Take the caller's end of the call."""
        if self._found is None:
            what = "the message is cut off" if self._is_coming else "the call has no message"
            self.fail(MalformedBody(what))

    def fail(self, problem: UnderstudyError) -> None:
        """Have its call end with a problem, and hold none of it."""
        self.held.release()
        self._found = problem
        self._wake()

    def bound(self, limit_bytes: int) -> None:
        """Let it have no more than so many bytes, of which less were let come so far."""
        self._limit_bytes = limit_bytes
        too_long = self._length is not None and self._length > limit_bytes + PREFIX_BYTES
        if too_long and not isinstance(self._found, UnderstudyError):
            self.fail(self._too_long())

    def abandon(self) -> None:
        """Hold none of it: its call is over."""
        self.held.release()

    def room(self) -> int:
        """Return how many bytes more the caller is to be allowed: what it announced, with some room for padding."""
        if self._length is None or self._found is not None:
            return 0
        missing = self._length - len(self.held.data)
        if self.may_send >= missing + MAX_PADDING_BYTES:
            return 0
        more = missing + ROOM_BYTES - self.may_send
        self.may_send += more
        return more

    async def whole(self, seconds: float) -> Message:
        """Return the message once all of it is there.

        Raises:
            UnderstudyError: It does not come: not in ``seconds``, not as one message, not within its bound.
        """
        if self._found is None:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            late = RequestTimedOut(f"the message was not complete after {seconds:g} s")
            timer = loop.call_later(seconds, self.fail, late)
            try:
                await self._waiter
            finally:
                timer.cancel()
                self._waiter = None
        found = self._found
        assert found is not None
        if isinstance(found, UnderstudyError):
            raise found.as_value()
        return found

    def _look(self) -> None:
        """Look what has come of it."""
        data = self.held.data
        if self._length is None and len(data) >= PREFIX_BYTES:
            self._length = int.from_bytes(data[1:PREFIX_BYTES]) + PREFIX_BYTES
            if self._length > self._limit_bytes + PREFIX_BYTES:
                self.fail(self._too_long())
                return
        if self._length is None or len(data) < self._length:
            return
        if len(data) > self._length:
            self.fail(NotOffered("the call has more than one message"))
            return
        self._end(self.held.whole())

    def _end(self, data: bytes) -> None:
        if len(data) > self._limit_bytes + PREFIX_BYTES:
            self.fail(self._too_long())
        elif data[0] > 1:
            self.fail(MalformedBody("the message's first byte is neither 0 nor 1"))
        else:
            self._found = Message(bool(data[0]), data[PREFIX_BYTES:])
            self._wake()

    def _too_long(self) -> BodyTooLarge:
        return BodyTooLarge(f"the message is longer than {self._limit_bytes} bytes")

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
