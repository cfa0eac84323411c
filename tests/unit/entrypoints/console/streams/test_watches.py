"""Pages that are watched: read once for all viewers, at their period or when something is told, as few as may be."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from understudy.entrypoints.console.streams import hearing
from understudy.entrypoints.console.streams.watches import Topic, Watch, Watches
from understudy.errors import Overloaded, RegistryUnavailable
from understudy.ports.registry.policy import PolicyChange

NEVER = 3_600.0
BOUND_SECONDS = 20.0


class Page:
    """What is read, and how often it was."""

    def __init__(self) -> None:
        self.shown = "one"
        self.readings: list[bool] = []
        self.problem: Exception | None = None

    async def __call__(self, *, is_told: bool) -> str:
        self.readings.append(is_told)
        if self.problem is not None:
            raise self.problem
        return self.shown

    def topic(self, model_name: str | None = "churn", period_seconds: float = NEVER) -> Topic:
        return Topic(("page", model_name), model_name, self, period_seconds, 0.0)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not is_so():  # noqa: ASYNC110 - a turn of the event loop each time
            await asyncio.sleep(0)


async def seen(watch: Watch, digest: str) -> None:
    """Wait as a viewer does until another digest than this one is there."""
    async with asyncio.timeout(BOUND_SECONDS):
        while watch.digest in ("", digest):
            await watch.wait(digest, BOUND_SECONDS)


async def test_however_many_view_a_page_it_is_read_once_and_all_are_told():
    page, watches = Page(), Watches(100)

    async def view() -> str:
        with watches.place():
            async with watches.watching(page.topic()) as watch:
                await seen(watch, "")
                await seen(watch, "one")
                return watch.digest

    viewers = [asyncio.create_task(view()) for _ in range(100)]
    await until(lambda: watches.viewers == 100 and len(page.readings) == 1)
    page.shown = "two"
    watches.moved("churn")

    assert await asyncio.gather(*viewers) == ["two"] * 100
    assert page.readings == [False, True]
    assert watches.viewers == 0


async def test_a_page_is_read_when_its_model_is_told_of_or_all_are_and_not_for_another():
    churn, every, watches = Page(), Page(), Watches(2)
    async with watches.watching(churn.topic()), watches.watching(every.topic(None)):
        await until(lambda: len(churn.readings) == len(every.readings) == 1)
        watches.moved("fraud")
        await until(lambda: len(every.readings) == 2)
        watches.moved(None)
        await until(lambda: len(churn.readings) == 2)

    assert churn.readings == [False, True]


async def test_without_news_a_page_is_read_at_its_period():
    page, watches = Page(), Watches(1)
    async with watches.watching(page.topic(period_seconds=0.01)):
        await until(lambda: len(page.readings) == 3)

    assert not any(page.readings)


@pytest.mark.parametrize("problem", [RegistryUnavailable("away"), ZeroDivisionError()])
async def test_a_reading_that_fails_is_told_so_that_pages_ask_themselves_and_the_next_one_is_made(problem):
    page, watches = Page(), Watches(1)
    async with watches.watching(page.topic()) as watch:
        await seen(watch, "")
        page.problem = problem
        watches.moved("churn")
        await seen(watch, "one")
        unread = watch.digest
        page.problem, page.shown = None, "two"
        watches.moved("churn")
        await seen(watch, unread)

    assert watch.digest == "two"


async def test_one_viewer_too_many_is_refused_and_nothing_is_read_for_none():
    page, watches = Page(), Watches(1)
    watches.require_place()
    async with watches.watching(page.topic()) as watch:
        with watches.place(), pytest.raises(Overloaded, match="1 pages are live"):
            watches.require_place()
    watches.require_place()

    assert watch.task is not None
    await until(watch.task.done)


async def test_the_end_of_the_process_wakes_every_viewer():
    page, watches = Page(), Watches(1)
    async with watches.watching(page.topic()) as watch:
        await seen(watch, "")
        waiting = asyncio.create_task(watch.wait("one", BOUND_SECONDS))
        await asyncio.sleep(0)
        watches.end()
        async with asyncio.timeout(BOUND_SECONDS):
            await waiting
    with pytest.raises(Overloaded):
        watches.require_place()

    assert watches.has_ended


async def test_a_listener_that_finds_no_postgres_says_so_once_until_it_hears_again(monkeypatch):
    monkeypatch.setattr(hearing, "RETRY_SECONDS", 0.0)
    tried, is_back = 0, asyncio.Event()

    async def listen(on_change: Callable[[PolicyChange], None]) -> None:
        nonlocal tried
        tried += 1
        if tried <= 5:
            raise RegistryUnavailable("away")
        on_change(PolicyChange(None))
        is_back.set()
        await asyncio.Event().wait()

    with capture_logs() as said:
        async with hearing.hearing(listen, Watches(1)), asyncio.timeout(BOUND_SECONDS):
            await is_back.wait()

    assert [one["event"] for one in said] == ["console.hears_nothing", "console.hears_again"]


async def test_a_lost_listener_is_opened_again_and_everything_is_read_then(monkeypatch):
    monkeypatch.setattr(hearing, "RETRY_SECONDS", 0.0)
    page, watches, opened = Page(), Watches(1), []

    async def listen(on_change: Callable[[PolicyChange], None]) -> None:
        opened.append(on_change)
        on_change(PolicyChange(None))
        if len(opened) == 1:
            raise RegistryUnavailable("the connection was cut")
        await asyncio.Event().wait()

    async with watches.watching(page.topic()):
        await until(lambda: len(page.readings) == 1)
        async with hearing.hearing(listen, watches):
            await until(lambda: len(opened) == 2)
            await until(lambda: len(page.readings) >= 2)
            opened[1](PolicyChange("churn"))
            await until(lambda: page.readings[-1])
