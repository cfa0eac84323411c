"""Model servers that answer some calls, by their inputs, at the hedge and never before, however busy the machine is.

Replicas, their choice, budget and hedges are the product's; the channels to them are twins, which know no time:

- a call that is not late is answered in the same step of its task, so that no timer can hedge it;
- of one that is late the first attempt never answers, and the second does at once;
- the clock stands still, so that a replica's 95th percentile remains the least there is.
"""

import asyncio
from collections.abc import Callable, Sequence
from itertools import count, cycle
from typing import Any

from understudy.adapters.model_servers.replicas.hedged_call import Hedging
from understudy.adapters.model_servers.replicas.probes import Probe
from understudy.adapters.model_servers.replicas.replica_set import ReplicaSet
from understudy.core.schema.tensors import Block, Row, Tensor
from understudy.core.upstream.hedging import HEDGE_BURST, HEDGE_RESERVE, MIN_CALLS

ENDPOINT = "127.0.0.1:1"
"""Of both replicas: which of them a call goes to first may differ, and a span names it."""
MAX_LATE = int(HEDGE_BURST - HEDGE_RESERVE)
"""Late calls at once. Each earns the hedge that it spends, so the budget, which is full at first, refuses none."""
LATE, PROMPT = b"late", b"prompt"


class HedgedBackend:
    """A :class:`understudy.ports.upstream.model_backend.ModelBackend` of two replicas, a function of the rows.

    Args:
        function: What both answer.
        is_late: Whether the call for a row is late at the replica that it goes to first.
        on_hedge: Called with what became of each hedge.
    """

    rows_per_call = 1
    """What a batch holds, and so whether it is late, would be a matter of time."""
    is_connected = True

    def __init__(
        self,
        function: Callable[[Sequence[Row]], Tensor],
        is_late: Callable[[Row], bool],
        on_hedge: Callable[[str], None],
    ) -> None:
        self._function = function
        self._is_late = is_late
        self._numbers = count()
        self._tried: set[bytes] = set()
        """Late calls whose first attempt has come."""
        self._late_places = asyncio.Semaphore(MAX_LATE)
        self._learning = asyncio.Lock()
        self._has_learnt = False
        # Late calls take the replicas in turns, so that the hedge of each forgives the one that was late before.
        self._draws = {kind: cycle((0.0, 0.5)) for kind in (LATE, PROMPT)}
        self._kind = PROMPT
        self._replicas = ReplicaSet(
            [ENDPOINT, ENDPOINT],
            Probe("probe", b"", bool),
            hedging=Hedging(1.0, 10_000, on_hedge),
            open_channel=lambda *_: _Channel(self._tried),
            now=lambda: 0.0,
            draw=lambda: next(self._draws[self._kind]),
        )

    async def infer(self, rows: Sequence[Row], timeout_seconds: float) -> Tensor:
        (row,) = rows
        if not self._has_learnt:
            await self._learn()
        if self._is_late(row):
            async with self._late_places:
                await self._ask(LATE, timeout_seconds)
        else:
            await self._ask(PROMPT, timeout_seconds)
        return self._function(rows)

    async def infer_block(self, block: Block, timeout_seconds: float) -> Tensor:
        raise NotImplementedError

    async def ready(self, timeout_seconds: float) -> bool:
        return True

    async def close(self) -> None:
        await self._replicas.close()

    async def _learn(self) -> None:
        """Let it know how long both replicas take, and fill the budget."""
        async with self._learning:
            for _ in range(0 if self._has_learnt else 2 * MIN_CALLS):
                await self._ask(PROMPT, 1.0)
            self._has_learnt = True

    async def _ask(self, kind: bytes, timeout_seconds: float) -> None:
        request = b"%d %b" % (next(self._numbers), kind)
        self._kind = kind
        assert await self._replicas.call("infer", request, timeout_seconds) == request


class _Channel:
    """To one of the replicas."""

    is_connected = True

    def __init__(self, tried: set[bytes]) -> None:
        self._tried = tried

    def method(self, name: str) -> Callable[..., "asyncio.Future[bytes]"]:
        assert name == "infer"
        return self._send

    async def close(self, grace_seconds: float | None = None) -> None:
        """Nothing is open."""

    def _send(self, request: bytes, **_: Any) -> "asyncio.Future[bytes]":
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if request.endswith(PROMPT) or request in self._tried:
            answer.set_result(request)  # which is awaited without a turn of the event loop
        self._tried.add(request)
        return answer
