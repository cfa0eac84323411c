"""Answers that callers do not take: which are ended, and when."""

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, UnreadLimits, end_calls

LIMITS = UnreadLimits(answers=8, size_bytes=1_000, seconds=10)


class World:
    """Answers that stand, by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ended: list[Any] = []
        self.told: list[tuple[str, int]] = []
        self.unread = UnreadAnswers(
            LIMITS, lambda: self.now, self.end, lambda why, calls: self.told.append((why, calls))
        )

    def end(self, calls: Collection[Any]) -> None:
        self.ended += [call.get_name() for call in calls]
        for call in calls:
            call.cancel()

    def hold(self, caller: str, count: int = 1, size: int = 0) -> "list[asyncio.Task[Any]]":
        calls = [asyncio.create_task(asyncio.Event().wait(), name=f"{caller}{i}") for i in range(count)]
        for call in calls:
            self.unread.hold(call, caller, size)
        return calls


@pytest.fixture
async def world():
    found = World()
    yield found
    found.unread.end_all()
    found.unread.close()


async def test_an_answer_that_was_taken_stands_no_more(world):
    call, other = world.hold("a", 2)

    call.cancel()
    await asyncio.wait([call])
    world.unread.release(other)

    assert (len(world.unread), world.told) == (0, [])


async def test_where_too_many_stand_the_oldest_of_who_has_most_give_way(world):
    world.hold("few", 2)
    world.hold("most", 6)

    world.hold("few", 1)

    assert sorted(world.ended) == ["most0", "most1"]  # a quarter of eight
    assert world.told == [("many", 2)]
    assert len(world.unread) == 7


async def test_where_all_have_little_the_oldest_of_all_give_way(world):
    for caller in "abcdefgh":
        world.hold(caller)

    world.hold("i")

    assert sorted(world.ended) == ["a0", "b0"]


async def test_answers_that_came_at_once_to_a_caller_that_reads_do_not_give_way(world):
    for caller in "abcd":
        world.hold(caller)
    world.now = 1.0

    world.hold("reads", 5)

    assert sorted(world.ended) == ["a0", "b0"]


async def test_bytes_are_bounded_as_answers_are(world):
    world.hold("few", 3)
    world.hold("most", 2, size=400)

    world.hold("other", 1, size=300)

    assert world.ended == ["most0"]


async def test_an_answer_beyond_all_bytes_stands_alone(world):
    world.hold("a", 1, size=5_000)
    world.hold("b", 1, size=10)

    assert world.ended == ["a0"]
    assert len(world.unread) == 1


async def test_late_answers_end_and_longer_ones_have_more_time(world):
    unread = UnreadAnswers(
        LIMITS._replace(size_bytes=10**6), lambda: world.now, world.end, lambda *told: world.told.append(told)
    )
    short, long = world.hold("a", 2)
    for call, size in ((short, 0), (long, 131_072)):
        world.unread.release(call)
        unread.hold(call, "a", size)

    world.now = 11.0
    unread.sweep()
    assert world.ended == ["a0"]
    world.now = 12.0
    unread.sweep()
    unread.close()

    assert world.told == [("late", 1), ("late", 1)]


async def test_memory_pressure_ends_all(world):
    world.hold("a", 3)
    world.unread.end_all()

    assert (len(world.unread), world.told) == (0, [("memory", 3)])


async def test_a_call_ends_with_the_task_that_began_it():
    begun = asyncio.Event()
    inner: asyncio.Task[Any]

    async def outer() -> None:
        nonlocal inner
        handler = inner = asyncio.create_task(asyncio.Event().wait())
        begun.set()
        await asyncio.Event().wait()
        await handler

    began = asyncio.create_task(outer(), name="rpc_task")
    other = asyncio.create_task(asyncio.Event().wait(), name="rpc_task")
    await begun.wait()

    end_calls([inner])

    await asyncio.wait([inner])
    assert inner.cancelled()
    assert (began.cancelling(), other.cancelling()) == (1, 0)
    other.cancel()
