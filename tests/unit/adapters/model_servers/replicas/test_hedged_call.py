"""A hedge that is answered while the first call's endpoint is still being resolved."""

import asyncio
import time

import pytest

from understudy.adapters.model_servers.addresses import PLAIN_WIRE
from understudy.adapters.model_servers.replicas.hedged_call import LOST, WON, HedgedCall
from understudy.adapters.model_servers.replicas.replica import Replica, Rpc


async def answered() -> bytes:
    return b"ok"


async def refused() -> bytes:
    raise ValueError


async def ended_hedge_of(opening: "asyncio.Task[None]", hedge: "asyncio.Task[bytes]") -> HedgedCall:
    """Return a call whose hedge has ended, after the callbacks of that have run."""
    replica = Replica("127.0.0.1:1", PLAIN_WIRE, time.monotonic)
    hedged = HedgedCall(replica, Rpc("method", b"", deadline=1.0, budget_seconds=1.0))
    hedged.first = opening
    hedged.start_hedge(hedge)
    await asyncio.wait((hedge,))
    await asyncio.sleep(0)
    return hedged


async def test_its_answer_counts_and_the_name_resolution_is_left():
    opening = asyncio.ensure_future(asyncio.sleep(3_600))

    hedged = await ended_hedge_of(opening, asyncio.ensure_future(answered()))

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (hedged.answer, hedged.end()) == (b"ok", WON)


async def test_its_answer_counts_though_the_replica_was_found_in_the_same_moment():
    opening = asyncio.ensure_future(asyncio.sleep(0))
    await opening

    hedged = await ended_hedge_of(opening, asyncio.ensure_future(answered()))

    assert (hedged.answer, hedged.end()) == (b"ok", WON)


async def test_one_that_fails_leaves_the_name_resolution_alone():
    opening = asyncio.ensure_future(asyncio.sleep(0.01))

    hedged = await ended_hedge_of(opening, asyncio.ensure_future(refused()))

    await opening
    assert (hedged.answer, hedged.end()) == (None, LOST)
