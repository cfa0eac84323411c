"""Body budget: bytes of long request bodies that a process holds for its callers, and an address's share of them."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from understudy.errors import Overloaded

BODY_BUDGET = "understudy.body_budget"
"""Key of the :class:`BodyBudget` in the server's state, once the lifespan has begun."""
SMALL_BYTES = 32_768
"""A body up to this that came whole is not counted: the bound on connections bounds these."""
LATE_SECONDS = 1.0
"""From when on a body that has not come to its end gives way to another one. As for heads: callers whose bodies are on
their way need less."""


class BodyBudget:
    """Counts the bytes of bodies that came in pieces, or are long, from their first piece until their call is over.

    Where there is no room, bodies give way that have been coming for :data:`LATE_SECONDS` or more, the one that began
    first at the head. So callers that hold the budget with bodies that trickle, from however many addresses, lose them
    to those that send theirs.

    Args:
        limit_bytes: What the process may hold.
        per_address_bytes: The same for one address.
        on_refused: Called with the address, the limit that it met in bytes, at each refusal.
        now: A clock in seconds.
    """

    def __init__(
        self,
        limit_bytes: int,
        per_address_bytes: int,
        on_refused: Callable[[str, int], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_bytes = limit_bytes
        self.per_address_bytes = per_address_bytes
        self.held_bytes = 0
        self._on_refused = on_refused
        self._now = now
        self._coming: dict[HeldBody, float] = {}
        """Bodies that have not come to their end, with when they began: the oldest first."""
        self._addresses: dict[str, _Share] = {}

    def begin(self, body: "HeldBody") -> None:
        """Count a body as one that is coming."""
        self._coming[body] = self._now()
        self._addresses.setdefault(body.address, _Share()).coming[body] = None

    def end(self, body: "HeldBody") -> None:
        """Count it as one that has come to its end."""
        if self._coming.pop(body, None) is not None:
            del self._addresses[body.address].coming[body]
            self._forget(body.address)

    def add(self, body: "HeldBody", size: int) -> None:
        """Count further bytes of a body, and let late ones give way to it if need be.

        Raises:
            Overloaded: There is no room for them; nothing was counted. The connection ends with the answer.
        """
        share = self._addresses.get(body.address) or _Share()
        while share.held_bytes + size > self.per_address_bytes:
            if not self._evict_late(share.coming, body):
                self._refuse(body, self.per_address_bytes, "bodies of this address")
        while self.held_bytes + size > self.limit_bytes:
            if not self._evict_late(self._coming, body):
                self._refuse(body, self.limit_bytes, "bodies")
        share = self._addresses.setdefault(body.address, share)
        share.held_bytes += size
        self.held_bytes += size

    def release(self, body: "HeldBody", size: int) -> None:
        """Count bytes no longer."""
        self.held_bytes -= size
        share = self._addresses.get(body.address)
        if share is not None:
            share.held_bytes -= size
            self._forget(body.address)

    def _forget(self, address: str) -> None:
        share = self._addresses[address]
        if share.held_bytes <= 0 and not share.coming:
            del self._addresses[address]

    def _evict_late(self, coming: "dict[HeldBody, None] | dict[HeldBody, float]", wanting: "HeldBody") -> bool:
        """Let the first of these bodies give way, if it is late; return whether one did."""
        oldest = next(iter(coming), None)
        if oldest is None or oldest is wanting or self._now() - self._coming[oldest] < LATE_SECONDS:
            return False
        self._on_refused(oldest.address, self.limit_bytes)
        oldest.evict()
        return True

    def _refuse(self, body: "HeldBody", limit_bytes: int, what: str) -> None:
        self._on_refused(body.address, limit_bytes)
        raise no_room(what)


class HeldBody:
    """What has come of one body, counted in the budget.

    Args:
        budget: The process's; ``None``: nothing is counted.
        address: That of the caller, as connections are counted.
    """

    __slots__ = ("_budget", "_on_evicted", "_size", "address", "data", "is_evicted")

    def __init__(self, budget: BodyBudget | None, address: str) -> None:
        self._budget = budget
        self._size = 0
        self._on_evicted: Callable[[], None] | None = None
        self.address = address
        self.is_evicted = False
        """Whether it gave way to another body: nothing of it is held, and no more is taken."""
        self.data = bytearray()
        """One buffer: as a list, pieces of a few bytes would take ten times their length."""

    def begin(self, on_evicted: Callable[[], None]) -> None:
        """Be coming, from now on; ``on_evicted`` is called once if it has to give way to another body."""
        self._on_evicted = on_evicted
        if self._budget is not None:
            self._budget.begin(self)

    def append(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            Overloaded: There is no room for it, or the body gave way; what came before it is dropped, too.
        """
        if self.is_evicted:
            raise no_room("bodies")
        try:
            self.count(len(piece))
        except Overloaded:
            self.release()
            raise
        self.data += piece

    def count(self, size: int) -> None:
        """Count bytes that are kept elsewhere.

        Raises:
            Overloaded: There is no room for them.
        """
        if self._budget is not None:
            self._budget.add(self, size)
            self._size += size

    def whole(self) -> bytes:
        """Return all of it, at its end; its bytes stay counted."""
        self._end()
        body = bytes(self.data)
        self.data.clear()
        return body

    def release(self) -> None:
        """Hold and count none of it any longer."""
        self._end()
        self.data.clear()
        if self._budget is not None:
            self._budget.release(self, self._size)
            self._size = 0

    def evict(self) -> None:
        """Give way to another body."""
        on_evicted = self._on_evicted
        self.is_evicted = True
        self.release()
        if on_evicted is not None:
            on_evicted()

    def _end(self) -> None:
        self._on_evicted = None
        if self._budget is not None:
            self._budget.end(self)


@dataclass(slots=True)
class _Share:
    """What is held for one address."""

    held_bytes: int = 0
    coming: dict[HeldBody, None] = field(default_factory=dict)
    """Its bodies that have not come to their end, the oldest first."""


def no_room(what: str) -> Overloaded:
    """Return the error of a body for which there is no room."""
    return Overloaded(f"the proxy holds as many bytes of {what} as it may", ends_connection=True)
