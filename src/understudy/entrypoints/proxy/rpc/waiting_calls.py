"""Calls that wait for their messages: so many at a time, and none of them keeps another caller from being answered."""

from understudy.entrypoints.proxy.overload.body_budget import no_room
from understudy.entrypoints.proxy.rpc.http2.message import Message
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream


class WaitingCalls:
    """Reads the messages of calls.

    A call whose message came with its header never waits. Of the others, where too many wait, the one gives way that
    has waited longest on the connection on which most do: a caller that begins calls and sends nothing loses its own.

    Args:
        most: Calls that wait at a time.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._waiting: dict[object, dict[CallStream, None]] = {}
        """By connection; of each, the oldest first."""

    async def read(self, stream: CallStream, seconds: float, limit_bytes: int | None = None) -> Message:
        """Return a call's message; raises as :meth:`.CallStream.read`, and ``Overloaded`` where it gave way."""
        if stream.message.is_found:
            return await stream.read(seconds, limit_bytes)
        if self._count >= self._most:
            self._give_way()
        self._waiting.setdefault(stream.wire, {})[stream] = None
        self._count += 1
        try:
            return await stream.read(seconds, limit_bytes)
        finally:
            self._remove(stream)

    def _give_way(self) -> None:
        most = max(self._waiting.values(), key=len)
        oldest = next(iter(most))
        self._remove(oldest)
        oldest.message.fail(no_room("messages"))

    def _remove(self, stream: CallStream) -> None:
        mine = self._waiting.get(stream.wire)
        if mine is None or stream not in mine:
            return
        del mine[stream]
        self._count -= 1
        if not mine:
            del self._waiting[stream.wire]
