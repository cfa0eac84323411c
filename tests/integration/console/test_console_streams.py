"""What an open page is told over its stream: a change at once, and nothing to a visitor whose key was revoked."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest
from contract.servers import TcpRelay
from worlds.console import Visit, running_console
from worlds.rollout import TWINS, PastRollout, two_versions

from understudy.entrypoints.console.pages import models, rollouts
from understudy.entrypoints.console.pages import streaming as streaming_page
from understudy.entrypoints.console.questions import Questions

CHURN = "/models/churn"
PATIENCE_SECONDS = 30.0
"""Longest time of anything here."""
LISTENERS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'understudy-listener'"
CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'understudy-listener'"
EVENTS = {"accept": "text/event-stream"}


class Stream:
    """The messages of one open stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self._lines = response.aiter_lines()

    async def until(self, name: str) -> float:
        """Return when the next message of this name came."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for line in self._lines:
                if line == f"event: {name}":
                    return asyncio.get_running_loop().time()
        raise AssertionError("the stream has ended")

    async def has_ended(self) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for _ in self._lines:
                pass


@asynccontextmanager
async def streaming(visit: Visit, path: str) -> AsyncIterator[Stream]:
    async with visit.client.stream("GET", path, headers=EVENTS, timeout=PATIENCE_SECONDS) as response:
        yield Stream(response)


@pytest.fixture
async def rollout(database: asyncpg.Connection, database_url: str) -> PastRollout:
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(2)
    return past


async def hears(database: asyncpg.Connection, listeners: int = 1) -> None:
    """Wait until so many connections listen."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await database.fetchval(LISTENERS) != listeners:  # noqa: ASYNC110 - Postgres tells of no connection
            await asyncio.sleep(0.02)


async def shown(visit: Visit, stream: Stream, page: str, words: str) -> None:
    """Wait until a page that is fetched at each news has these words."""
    while words not in (await visit.get(page)).text:
        await stream.until("news")


async def test_a_rollback_by_sql_is_told_by_notification_on_both_pages(rollout, database, database_url, monkeypatch):
    for module, period in ((rollouts, "ROLLOUT_SECONDS"), (models, "MODELS_SECONDS")):
        monkeypatch.setattr(module, period, 3_600.0)  # by itself nothing would be read again
    page = f"{CHURN}/rollouts/{rollout.id}"
    async with running_console(database_url) as console, console.visit("read") as visit:
        await hears(database)
        async with streaming(visit, f"/live{page}/stream") as one, streaming(visit, "/live/models/stream") as every:
            await asyncio.gather(one.until("news"), every.until("news"))
            await database.execute("SELECT understudy_rollback('churn', 'enough')")
            await asyncio.gather(shown(visit, one, page, "enough"), every.until("news"))


async def test_while_its_listener_is_lost_a_page_is_told_at_its_period(rollout, database, database_url):
    async with running_console(database_url) as console, console.visit("read") as visit:
        await hears(database)
        async with streaming(visit, f"/live{CHURN}/rollouts/{rollout.id}/stream") as stream:
            await stream.until("news")
            await database.execute(CUT)
            await rollout.go_on(1)  # of which nothing is told by notification
            await stream.until("news")
            await hears(database)


async def test_a_revoked_key_ends_its_stream(rollout, database, database_url):
    async with (
        running_console(database_url) as console,
        console.visit("read") as visit,
        streaming(visit, "/live/models/stream") as stream,
    ):
        await stream.until("news")
        await database.execute("UPDATE ApiKey SET revoked_at = now()")
        await stream.has_ended()


async def test_one_stream_too_many_is_refused_and_who_leaves_makes_room(rollout, database_url):
    path = f"/live{CHURN}/rollouts/{rollout.id}/stream"
    async with running_console(database_url, max_connections=6) as console, console.visit("read") as visit:
        async with streaming(visit, path) as one, streaming(visit, path) as two, streaming(visit, path) as three:
            await asyncio.gather(*(stream.until("news") for stream in (one, two, three)))
            refused = await visit.get(path, **EVENTS)
        await rooms(visit, path)

    assert (refused.status_code, "E507" in refused.text) == (503, True)


async def test_streams_that_are_asked_for_at_once_are_no_more_than_there_are_places(rollout, database_url):
    path = f"/live{CHURN}/rollouts/{rollout.id}/stream"
    async with running_console(database_url, max_connections=24) as console, console.visit("read") as visit:
        all_answered, statuses = asyncio.Event(), []

        async def view() -> None:
            async with streaming(visit, path) as stream:
                statuses.append(stream.status)
                if len(statuses) == 20:
                    all_answered.set()
                await all_answered.wait()

        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(view() for _ in range(20)))

    assert sorted(statuses) == [200] * 12 + [503] * 8


async def test_a_stream_ends_by_itself_and_its_next_one_tells_only_what_is_new(
    rollout, database, database_url, monkeypatch
):
    monkeypatch.setattr(streaming_page, "STREAM_SECONDS", 0.2)
    path = f"/live{CHURN}/rollouts/{rollout.id}/stream"
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        running_console(database_url) as console,
        console.visit("read") as visit,
    ):
        name = ""
        while not (name := newest_id(await told(visit, path))):
            pass  # it ended before the page was read
        while "event: news" in (text := await told(visit, path, **{"last-event-id": name})):
            name = newest_id(text)  # the page has changed by itself
        assert "event: beat" in text
        await database.execute("SELECT understudy_rollback('churn', 'enough')")
        while not newest_id(await told(visit, path, **{"last-event-id": name})):
            pass


def newest_id(told: str) -> str:
    """Return what was told last; empty where nothing was."""
    found: list[str] = re.findall("^id: (.*)$", told, re.MULTILINE)
    return found[-1] if found else ""


async def told(visit: Visit, path: str, **more: str) -> str:
    """Return everything that a stream tells until it ends."""
    return (await visit.get(path, **EVENTS, **more)).text


async def test_a_page_of_another_site_gets_no_stream_nor_does_who_wants_but_its_head(rollout, database_url):
    async with (
        asyncio.timeout(PATIENCE_SECONDS),
        running_console(database_url) as console,
        console.visit("read") as visit,
    ):
        answers = [
            await visit.get("/live/models/stream", **EVENTS, **{"sec-fetch-site": site})
            for site in ("cross-site", "same-site")
        ]
        answers.append(await visit.client.head("/live/models/stream", headers=EVENTS))

    assert [one.status_code for one in answers] == [404, 404, 404]


async def rooms(visit: Visit, path: str) -> None:
    """Wait until a stream is opened."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            async with streaming(visit, path) as stream:
                if stream.status == 200:
                    return
            await asyncio.sleep(0.05)


async def test_a_hundred_viewers_of_a_page_have_it_read_once(rollout, database_url, monkeypatch):
    read = []
    shared = Questions.shared

    async def counted(self: Questions, name: object, *given: object, **more: object) -> object:
        read.append(name)
        return await shared(self, name, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Questions, "shared", counted)
    path = f"/live{CHURN}/rollouts/{rollout.id}/stream"
    async with running_console(database_url) as console, console.visit("read") as visit:

        async def view() -> None:
            async with streaming(visit, path) as stream:
                await stream.until("news")
                await stream.until("beat")

        visit.client = httpx2.AsyncClient(
            base_url=console.origin, cookies=visit.client.cookies, limits=httpx2.Limits(max_connections=200)
        )
        await asyncio.gather(*(view() for _ in range(100)))
        await visit.client.aclose()

    assert len(read) <= 10  # one reading each 2 s, in some seconds


async def test_only_the_consoles_script_gets_a_stream_and_the_process_ends_with_one_open(database, database_url):
    await two_versions(database)
    async with running_console(database_url) as console, console.visit("read") as visit:
        page = await visit.get("/live/models/stream")
        stream = await visit.client.send(
            visit.client.build_request("GET", "/live/models/stream", headers=EVENTS), stream=True
        )
        console.server.should_exit = True
        lines = [line async for line in stream.aiter_lines()]  # to its end, not cut off
        await console.task

    assert (page.status_code, stream.status_code, lines[-1]) == (404, 200, "")


async def test_a_console_hears_again_after_its_connection_was_cut(rollout, database, database_url):
    own = urlsplit(database_url)
    async with TcpRelay(own.port or 5432) as relay:
        through = own._replace(netloc=f"{own.username}@{relay.endpoint}").geturl()
        async with running_console(through) as console, console.visit("read"):
            await hears(database)
            relay.cut()
            await hears(database)
