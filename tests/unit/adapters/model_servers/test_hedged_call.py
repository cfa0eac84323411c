"""A hedge that is answered while the first call's replica is still looked for."""

import asyncio

import pytest

from understudy.adapters.model_servers.hedged_call import LOST, WON, Race


async def answered() -> bytes:
    return b"ok"


async def refused() -> bytes:
    raise ValueError


async def race_of(opening: "asyncio.Task[None]", hedge: "asyncio.Task[bytes]") -> Race:
    """Return a race whose hedge has ended, and whoever waits for it has heard of that."""
    race = Race(0, "method", b"", deadline=1.0, budget_seconds=1.0)
    race.first = opening
    race.start_hedge(hedge)
    await asyncio.wait((hedge,))
    await asyncio.sleep(0)
    return race


async def test_its_answer_counts_and_the_search_is_left():
    opening = asyncio.ensure_future(asyncio.sleep(3_600))

    race = await race_of(opening, asyncio.ensure_future(answered()))

    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (race.answer, race.end()) == (b"ok", WON)


async def test_its_answer_counts_though_the_replica_was_found_in_the_same_moment():
    opening = asyncio.ensure_future(asyncio.sleep(0))
    await opening

    race = await race_of(opening, asyncio.ensure_future(answered()))

    assert (race.answer, race.end()) == (b"ok", WON)


async def test_one_that_fails_leaves_the_search_alone():
    opening = asyncio.ensure_future(asyncio.sleep(0.01))

    race = await race_of(opening, asyncio.ensure_future(refused()))

    await opening
    assert (race.answer, race.end()) == (None, LOST)
