"""Reports run in few threads, which a report keeps that is waited for no longer."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from understudy.bootstrap.console import REPORTS, Reporter
from understudy.bootstrap.session import Session
from understudy.errors import Overloaded


def no_database() -> Session:
    return Session("postgresql://127.0.0.1:1/none", timeout_seconds=1)


async def test_a_report_that_is_waited_for_no_longer_keeps_its_thread_and_no_other_is_queued_behind_it():
    gate, threads = Event(), ThreadPoolExecutor(REPORTS)
    report = Reporter(no_database, threads)

    async def computes(_session: Any) -> str:
        gate.wait(5)  # of a core, in which no time-out of its event loop is heard
        return "done"

    late = [asyncio.create_task(report(computes)) for _ in range(REPORTS)]
    await asyncio.sleep(0)
    for one in late:
        one.cancel()
    ended = await asyncio.gather(*late, return_exceptions=True)
    with pytest.raises(Overloaded):
        await report(computes)
    gate.set()
    threads.shutdown()

    assert [type(one) for one in ended] == [asyncio.CancelledError] * REPORTS


async def test_a_report_that_ended_gives_its_place_to_the_next():
    with ThreadPoolExecutor(REPORTS) as threads:
        report = Reporter(no_database, threads)

        async def answers(_session: Any) -> str:
            return "done"

        assert [await report(answers) for _ in range(REPORTS + 1)] == ["done"] * (REPORTS + 1)


async def test_the_end_of_a_process_waits_for_no_report_that_waits_for_postgres():
    threads = ThreadPoolExecutor(REPORTS)
    report, has_begun = Reporter(no_database, threads), Event()

    async def waits(_session: Any) -> None:
        has_begun.set()
        await asyncio.Event().wait()

    late = asyncio.create_task(report(waits))
    await asyncio.to_thread(has_begun.wait)
    report.end()
    threads.shutdown()

    with pytest.raises(asyncio.CancelledError):
        await late
