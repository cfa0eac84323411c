import asyncio
from contextlib import AsyncExitStack

import pytest

from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.background.tasks import end_tasks, run_forever, run_until_closed


class Work:
    """Goes wrong in the given ways, one after the other, and then goes on until it is cancelled."""

    def __init__(self, *ends: Exception | None) -> None:
        self.ends = list(ends)
        self.goes_on = asyncio.Event()

    async def __call__(self) -> None:
        await asyncio.sleep(0)
        if self.ends:
            end = self.ends.pop(0)
            if end is not None:
                raise end
            return
        self.goes_on.set()
        await asyncio.Event().wait()


async def test_work_that_fails_or_ends_is_started_again_and_failures_are_counted():
    work, telemetry = Work(TypeError("nested too deep"), None, RecursionError()), MemoryTelemetry()

    running = asyncio.create_task(run_forever("saver", work, telemetry, pause_seconds=0.001))
    await asyncio.wait_for(work.goes_on.wait(), 5)

    assert telemetry.counts == {("background_failures_total", "saver"): 2}
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_pause_lies_between_two_starts():
    work = Work(*[ValueError()] * 3)
    loop = asyncio.get_running_loop()
    began = loop.time()

    running = asyncio.create_task(run_forever("saver", work, MemoryTelemetry(), pause_seconds=0.05))
    await asyncio.wait_for(work.goes_on.wait(), 5)

    assert loop.time() - began >= 0.15
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_work_that_runs_until_a_stack_closes_has_ended_when_it_is_closed():
    work, before = Work(), asyncio.all_tasks()

    async with AsyncExitStack() as stack:
        run_until_closed("saver", work, MemoryTelemetry(), stack)
        await asyncio.wait_for(work.goes_on.wait(), 5)
        running = asyncio.all_tasks() - before

    assert [task.cancelled() for task in running] == [True]


async def test_tasks_that_are_ended_have_ended():
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    tasks = [asyncio.create_task(work()) for _ in range(2)]
    await asyncio.sleep(0)
    await end_tasks(tasks)

    assert ended == [True, True]
    assert all(task.cancelled() for task in tasks)
