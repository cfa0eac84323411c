"""Body budget: bytes of long request bodies that a process holds for its callers, and an address's share of them."""

from collections.abc import Callable

from understudy.errors import Overloaded

BODY_BUDGET = "understudy.body_budget"
"""Key of the :class:`BodyBudget` in the server's state, once the lifespan has begun."""
SMALL_BYTES = 32_768
"""A body up to this that came whole is not counted: the bound on connections bounds these."""


class BodyBudget:
    """Counts the bytes of bodies that came in pieces, or are long, from their first piece until their call is over.

    Args:
        limit_bytes: What the process may hold.
        per_address_bytes: The same for one address.
        on_refused: Called with the address, the limit that it met in bytes, at each refusal.
    """

    def __init__(self, limit_bytes: int, per_address_bytes: int, on_refused: Callable[[str, int], None]) -> None:
        self.limit_bytes = limit_bytes
        self.per_address_bytes = per_address_bytes
        self.held_bytes = 0
        self._on_refused = on_refused
        self._addresses: dict[str, int] = {}

    def add(self, address: str, size: int) -> None:
        """Count further bytes of a body.

        Raises:
            Overloaded: There is no room for them; nothing was counted. The connection ends with the answer.
        """
        of_address = self._addresses.get(address, 0) + size
        if of_address > self.per_address_bytes:
            self._refuse(address, self.per_address_bytes, "bodies of this address")
        if self.held_bytes + size > self.limit_bytes:
            self._refuse(address, self.limit_bytes, "bodies")
        self._addresses[address] = of_address
        self.held_bytes += size

    def release(self, address: str, size: int) -> None:
        """Count bytes no longer."""
        self.held_bytes -= size
        left = self._addresses.get(address, 0) - size
        if left > 0:
            self._addresses[address] = left
        else:
            self._addresses.pop(address, None)

    def _refuse(self, address: str, limit_bytes: int, what: str) -> None:
        self._on_refused(address, limit_bytes)
        raise Overloaded(f"the proxy holds as many bytes of {what} as it may", ends_connection=True)


class HeldBody:
    """What has come of one body, counted in the budget.

    Args:
        budget: The process's; ``None``: nothing is counted.
        address: That of the caller, as connections are counted.
    """

    __slots__ = ("_address", "_budget", "_size", "data")

    def __init__(self, budget: BodyBudget | None, address: str) -> None:
        self._budget = budget
        self._address = address
        self._size = 0
        self.data = bytearray()
        """One buffer: as a list, pieces of a few bytes would take ten times their length."""

    def append(self, piece: bytes) -> None:
        """Add a piece.

        Raises:
            Overloaded: There is no room for it; what came before it is dropped, too.
        """
        try:
            self.count(len(piece))
        except Overloaded:
            self.release()
            self.data.clear()
            raise
        self.data += piece

    def count(self, size: int) -> None:
        """Count bytes that are kept elsewhere.

        Raises:
            Overloaded: There is no room for them.
        """
        if self._budget is not None:
            self._budget.add(self._address, size)
            self._size += size

    def release(self) -> None:
        """Count none of it any longer."""
        if self._budget is not None:
            self._budget.release(self._address, self._size)
            self._size = 0
