"""One call and the hedge that may overtake it: the first answer is used, the other call is cancelled."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from understudy.adapters.model_servers.channels import Call
from understudy.adapters.model_servers.replicas.call_tasks import is_cancelled
from understudy.adapters.model_servers.replicas.replica import Replica, Rpc
from understudy.adapters.model_servers.status import closed

WON = "won"
LOST = "lost"
REFUSED = "refused"


class Hedging(NamedTuple):
    """How a version's calls are hedged."""

    ratio: float
    """Hedges for each call, at most; 0: none."""
    max_calls: int
    """Calls of the version in flight at which there are no more hedges."""
    on_hedge: Callable[[str], None]
    """Called with what became of a late call's hedge: ``won``, ``lost``, or ``refused`` by the budget."""


NO_HEDGING = Hedging(0.0, 0, lambda _result: None)


class HedgedCall:
    """A call, and perhaps its hedge.

    The first call runs in its caller's own task; the hedge, which few calls need, in one of its own. So a call that is
    not hedged costs no task: a hedge that wins cancels the first call, and its caller, who wakes up, finds
    :attr:`answer`.
    """

    __slots__ = ("_hedge", "answer", "first", "is_refused", "replica", "rpc", "timer")

    def __init__(self, replica: Replica, rpc: Rpc) -> None:
        self.replica = replica
        """The replica that has the first call."""
        self.rpc = rpc
        self.first: Call | asyncio.Task[None] | None = None
        """What the first call waits for: its replica to be found, if that has to be, and then the call itself."""
        self.answer: bytes | None = None
        """The hedge's answer, if it came first."""
        self.timer: asyncio.TimerHandle | None = None
        """When a hedge is due."""
        self.is_refused = False
        """Whether a hedge was due and the budget had none."""
        self._hedge: asyncio.Task[bytes] | None = None

    @property
    def is_hedged(self) -> bool:
        """Whether a hedge was sent."""
        return self._hedge is not None

    def start_hedge(self, hedge: "asyncio.Task[bytes]") -> None:
        """Let a second call run."""
        self._hedge = hedge
        hedge.add_done_callback(self._hedge_ended)

    async def rest_on_hedge(self) -> bytes:
        """Return the answer of the hedge, after the first call failed; raises as the hedge."""
        assert self._hedge is not None
        try:
            self.answer = await self._hedge
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            raise closed() from None  # closing cancelled the hedge, not its caller
        return self.answer

    def end(self) -> str | None:
        """Cancel what still runs, and return what became of the hedge; ``None`` when none was due."""
        if self.timer is not None:
            self.timer.cancel()
        if self._hedge is None:
            return REFUSED if self.is_refused else None
        self._hedge.cancel()
        return LOST if self.answer is None else WON

    def _hedge_ended(self, hedge: "asyncio.Task[bytes]") -> None:
        # A hedge that failed changes nothing: the first call goes on. Reading its exception keeps asyncio silent.
        if hedge.cancelled() or hedge.exception() is not None or self.first is None:
            return
        # False when the first call was answered in the same moment: then its answer is the caller's. A replica that was
        # found in the same moment has not been called, and is not any more.
        if self.first.cancel() or isinstance(self.first, asyncio.Task):
            self.answer = hedge.result()
