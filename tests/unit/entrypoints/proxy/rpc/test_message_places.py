"""Messages on their way are so many at a time; late ones give way, and the newest call has a place first."""

import asyncio
from typing import Any

import pytest
from virtual_time import in_virtual_time

from understudy.entrypoints.proxy.rpc.message_places import MessagePlaces
from understudy.errors import Overloaded, RequestTimedOut


class Coming:
    """A call whose message comes after some time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.is_read = False

    async def read(self) -> bytes:
        self.is_read = True
        await asyncio.sleep(self.seconds)
        return b"all"


class Places(MessagePlaces):
    """Some, on the running loop's clock."""

    def __init__(self, places: int) -> None:
        super().__init__(places, asyncio.get_running_loop().time)

    def begin(self, call: Coming, seconds: float = 10) -> "asyncio.Task[object]":
        context: Any = call
        return asyncio.create_task(self.read(context, seconds))


@in_virtual_time
async def test_a_message_that_comes_in_time_is_returned_and_another_is_timed_out():
    places = Places(2)

    in_time, late = places.begin(Coming(9)), places.begin(Coming(11))

    assert await in_time == b"all"
    with pytest.raises(RequestTimedOut):
        await late


@in_virtual_time
async def test_without_a_place_no_message_is_read_and_the_newest_call_has_the_next_one():
    places = Places(1)
    calls = [Coming(0.5) for _ in range(3)]
    reading = [places.begin(call) for call in calls]

    await reading[0]
    await asyncio.sleep(0.1)

    assert [call.is_read for call in calls] == [True, False, True]
    assert await asyncio.gather(*reading) == [b"all"] * 3


@in_virtual_time
async def test_a_message_that_trickles_gives_way_after_a_second_and_only_where_there_is_no_place():
    places, clock = Places(2), asyncio.get_running_loop().time
    began = clock()
    trickling = [places.begin(Coming(9)) for _ in range(2)]
    await asyncio.sleep(0.4)

    assert await places.begin(Coming(0)) == b"all"

    assert clock() - began == pytest.approx(1)
    with pytest.raises(Overloaded):
        await trickling[0]
    assert await trickling[1] == b"all"


@in_virtual_time
async def test_a_call_that_gives_up_its_wait_leaves_no_trace():
    places = Places(1)
    first, waiting = places.begin(Coming(0.5)), places.begin(Coming(0), 0.1)

    with pytest.raises(RequestTimedOut):
        await waiting
    await first

    assert await places.begin(Coming(0)) == b"all"


@in_virtual_time
async def test_short_of_memory_all_give_way_at_once():
    places = Places(3)
    coming = [places.begin(Coming(9)) for _ in range(3)]
    await asyncio.sleep(0)

    places.end_all()

    assert [type(one) for one in await asyncio.gather(*coming, return_exceptions=True)] == [Overloaded] * 3
