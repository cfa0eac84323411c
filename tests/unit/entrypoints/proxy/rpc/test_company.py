import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from understudy.entrypoints.proxy.rpc.company import Company

PATIENCE, ENOUGH = 5, 4


class Turns:
    """Counts turns of the event loop, and notes in which one calls went on."""

    def __init__(self) -> None:
        self.now = 0
        self.went_on: list[int] = []

    async def pass_by(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.now += 1


async def called(company: Company, turns: Turns, is_over: asyncio.Event) -> None:
    try:
        await company.join()
        turns.went_on.append(turns.now)
        await is_over.wait()
    finally:
        company.leave()


@asynccontextmanager
async def one_under_way(company: Company) -> AsyncIterator[tuple[Turns, asyncio.TaskGroup, asyncio.Event]]:
    turns, is_over = Turns(), asyncio.Event()
    async with asyncio.TaskGroup() as calls:
        calls.create_task(called(company, Turns(), is_over))
        await turns.pass_by(2)
        turns.now = 0
        yield turns, calls, is_over
        await turns.pass_by(3 * PATIENCE)
        is_over.set()


async def test_a_call_that_is_alone_waits_for_none():
    company = Company(PATIENCE, ENOUGH)
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)

    for _ in range(3):
        await company.join()
        company.leave()

    assert turned == []


async def test_calls_that_come_turn_by_turn_go_on_together_once_none_comes_any_more():
    company = Company(PATIENCE, ENOUGH)
    async with one_under_way(company) as (turns, calls, is_over):
        for _ in range(ENOUGH - 1):
            calls.create_task(called(company, turns, is_over))
            await turns.pass_by(PATIENCE - 1)

    assert len(turns.went_on) == ENOUGH - 1
    assert len(set(turns.went_on)) == 1
    assert turns.went_on[0] >= (ENOUGH - 2) * (PATIENCE - 1)


async def test_when_enough_have_come_they_wait_no_longer():
    company = Company(PATIENCE, ENOUGH)
    async with one_under_way(company) as (turns, calls, is_over):
        for _ in range(ENOUGH):
            calls.create_task(called(company, turns, is_over))
        await turns.pass_by(3 * PATIENCE)

    assert len(turns.went_on) == ENOUGH
    assert max(turns.went_on) < PATIENCE


async def test_a_caller_who_gives_up_keeps_no_other_waiting():
    company = Company(PATIENCE, ENOUGH)
    async with one_under_way(company) as (turns, calls, is_over):
        first = calls.create_task(called(company, turns, is_over))
        calls.create_task(called(company, turns, is_over))
        await turns.pass_by(1)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first

    assert len(turns.went_on) == 1
