"""Streams that we have ended before the peer has: what may still come for them, and no more."""

from understudy.adapters.http2.frame_budget import FrameBudget
from understudy.adapters.http2.frames import ConnectionFault, ErrorCode

MAX_KEPT = 1_024
"""Streams of which it is known what may still come; of older ones, any frame is let pass."""
MORE_THAN_ITS_WINDOW = "more than a stream's window allows"


class EndedStreams:
    """The streams of a connection of which frames may be on their way."""

    def __init__(self, budget: FrameBudget) -> None:
        self._budget = budget
        self._left: dict[int, int] = {}
        """Such streams, the oldest first, and how many bytes may still come for each."""
        self._forgotten = 0
        """The last stream of which it is not known any more how it ended."""

    def add(self, number: int, may_come: int) -> None:
        """Count a stream as ended by us; so many bytes may be on their way."""
        if len(self._left) == MAX_KEPT:
            oldest = next(iter(self._left))
            del self._left[oldest]
            self._forgotten = max(self._forgotten, oldest)
        self._left[number] = may_come

    def require(self, number: int) -> None:
        """Let pass what comes for a stream that we have ended.

        Raises:
            ConnectionFault: The peer has ended it.
        """
        if number > self._forgotten and number not in self._left:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, "a frame on a stream that it has ended")

    def count(self, number: int, size: int) -> None:
        """Count a part of a message that is not waited for: its stream's window holds, as long as it is known."""
        left = self._left.get(number)
        if left is None:
            self._budget.spend()
            return
        self._left[number] = left - size
        if left < size:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, MORE_THAN_ITS_WINDOW)
