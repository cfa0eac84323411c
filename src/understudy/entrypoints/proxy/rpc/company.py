"""Company: calls that gRPC's library brings one by one go on together, so that they share what a turn costs.

The library takes one call from its core, and asks for the next one in a later turn of the event loop. Each call would
be a turn of its own to all that is behind it: a batch for the model server, a write of the log, its counts (ADR 144).
"""

import asyncio

PATIENCE_TURNS, ENOUGH_CALLS = 8, 16
"""Of ten forms in five short runs the one that looked best: 4 to 5 calls go on together where 64 callers wait."""


class Company:
    """Where calls wait for those that come in the next turns, while others are under way.

    A turn of a process that has nothing else to do takes microseconds; for those of a busy one its callers wait anyway.

    Args:
        patience_turns: Of the event loop, for which the last call that came waits for another.
        enough_calls: They go on without a further wait.
    """

    def __init__(self, patience_turns: int = PATIENCE_TURNS, enough_calls: int = ENOUGH_CALLS) -> None:
        self._patience_turns = patience_turns
        self._enough_calls = enough_calls
        self._waiting: list[asyncio.Future[None]] = []
        self._turns_left = 0
        self._under_way = 0

    async def join(self) -> None:
        """Wait for company, unless no other call is under way. :meth:`leave` follows, however this ends."""
        self._under_way += 1
        if self._under_way == 1:
            return
        loop = asyncio.get_running_loop()
        together = loop.create_future()
        self._waiting.append(together)
        self._turns_left = self._patience_turns if len(self._waiting) < self._enough_calls else 0
        if len(self._waiting) == 1:
            loop.call_soon(self._end_turn)
        await together

    def leave(self) -> None:
        """Note that a call that joined is over."""
        self._under_way -= 1

    def _end_turn(self) -> None:
        if self._turns_left > 0:
            self._turns_left -= 1
            asyncio.get_running_loop().call_soon(self._end_turn)
            return
        waiting, self._waiting = self._waiting, []
        for together in waiting:
            if not together.done():  # else its caller has given up
                together.set_result(None)
