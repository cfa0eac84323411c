"""One call: what its caller awaits and may cancel, from the wait for a connection to the answer."""

import asyncio
from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

from understudy.adapters.model_servers.http2.failures import late
from understudy.adapters.model_servers.http2.request_head import timeout_block

Outcome: TypeAlias = bytes | Exception | None
"""An answer, a failure, or ``None``: the call ended with OK before there was a whole message."""
MAX_MOVES = 1
"""How often a call goes to another connection, since the one that it was for did not take it. gRPC does so once."""


class Holder(Protocol):
    """What has a call in hand: a channel without a connection, or a connection."""

    def drop(self, call: "UnaryCall") -> None:
        """Forget a call, whose caller waits no longer."""


class UnaryCall:
    """A call under way."""

    __slots__ = ("_answer", "_fields", "_loop", "_moves", "_timer", "_until", "holder", "message", "number", "waits")

    def __init__(self, fields: bytes, metadata: bytes, request: bytes, timeout: float, *, waits: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Outcome] | None = self._loop.create_future()
        """``None`` once the caller has its outcome: a failure knows the caller's frames, which know this call."""
        self._until = self._loop.time() + timeout
        self._timer = self._loop.call_later(timeout, self._expire)
        self._fields = (fields, metadata)
        self._moves = 0
        self.message = b"\x00" + len(request).to_bytes(4) + request
        """As gRPC frames it: not compressed, its length first."""
        self.waits = waits
        """For a connection, too, that cannot be made at the first attempt."""
        self.holder: Holder | None = None
        self.number = 0
        """Of its stream; 0: it has none."""

    def __await__(self) -> Generator[Any, None, bytes]:
        """Return the answer; raises as gRPC's own library does."""
        assert self._answer is not None
        try:
            outcome = yield from self._answer.__await__()
        except asyncio.CancelledError:
            self._abandon()
            raise
        self._answer = None
        if isinstance(outcome, Exception):
            try:
                raise outcome
            finally:
                del outcome  # the failure knows this frame, too
        return outcome  # type: ignore[return-value] # None is what gRPC's library returns, too, and its types do not say

    @property
    def is_settled(self) -> bool:
        """Whether it has an outcome, or was cancelled."""
        return self._answer is None or self._answer.done()

    def try_move(self) -> bool:
        """Whether it may go to another connection, now that this one has not taken it; counts that it does."""
        self._moves += 1
        return self._moves <= MAX_MOVES

    def head_block(self) -> bytes:
        """Return the header block of its request, for a server that gets it now."""
        prefix, metadata = self._fields
        return prefix + timeout_block(max(self._until - self._loop.time(), 0.001)) + metadata

    def cancel(self) -> bool:
        """See the port."""
        if self._answer is None or not self._answer.cancel():
            return False
        self._abandon()
        return True

    def settle(self, outcome: Outcome) -> None:
        """Give the caller its outcome, if it still waits."""
        self._timer.cancel()
        self.holder = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(outcome)

    def _expire(self) -> None:
        holder = self.holder
        if not self.is_settled:
            self.settle(late())
            if holder is not None:
                holder.drop(self)

    def _abandon(self) -> None:
        self._timer.cancel()
        holder, self.holder = self.holder, None
        if holder is not None:
            holder.drop(self)
