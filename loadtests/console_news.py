"""How soon an open page of the console has what happened: changes by SQL, and a verdict and a rollback in a demo."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg
from e2e.demos import a_demo
from httpx2 import AsyncClient
from worlds.console import Visit

from understudy.entrypoints.console.views.links import rollout_path

VERDICT_SECONDS, ROLLBACK_SECONDS = 3.0, 1.0
"""What is asked of a verdict and of a rollback by SQL, from the commit on."""
CHANGES = 20
_MODEL = "visits"
_EVENTS = {"accept": "text/event-stream"}
_ROLLED_BACK = """
    SELECT r.id, extract(epoch FROM e.at)::float8 FROM Rollout r JOIN RolloutEvent e ON e.rollout_id = r.id
    WHERE r.model_name = $1 AND r.kind = 'rollout' AND e.phase = 'FAILED' ORDER BY e.id LIMIT 1
"""
_OPEN = """
    SELECT r.id FROM Rollout r JOIN ServingPolicy p ON p.rollout_id = r.id
    WHERE r.model_name = $1 AND r.kind = 'rollout' AND challenger_weight > 0 AND r.id > $2
"""


class OpenPage:
    """The page of a rollout as a browser has it open: its parts are fetched at each news of its stream.

    Args:
        visit: The session.
        path: Of the page.
    """

    def __init__(self, visit: Visit, path: str) -> None:
        self._visit, self._path = visit, f"/live{path}"
        self._news = self._told()

    async def until(self, part: str, words: str) -> float:
        """Return when a part has these words, in seconds since the epoch."""
        while words not in (await self._visit.get(f"{self._path}{part}")).text:
            await anext(self._news)
        return time.time()

    async def close(self) -> None:
        """End its stream."""
        await self._news.aclose()

    async def _told(self) -> AsyncGenerator[None, None]:
        """Yield at each news; a stream lasts a minute, and the next one is opened as a browser does."""
        while True:
            async with self._visit.client.stream("GET", f"{self._path}/stream", headers=_EVENTS) as told:
                told.raise_for_status()
                async for line in told.aiter_lines():
                    if line == "event: news":
                        yield


async def seconds_of_changes(database: asyncpg.Connection, visit: Visit, path: str) -> str:
    """Return how long after their commits changes by SQL are on an open page."""
    page, seconds = OpenPage(visit, path), []
    for place in range(CHANGES):
        reason = f"change number {place}."
        async with database.transaction():
            await database.execute("SELECT set_config('understudy.reason', $1, TRUE)", reason)
            await database.execute("UPDATE ServingPolicy SET shadow_percent = $1", 50 + place)
        began = time.time()
        seconds.append(await page.until("/story", reason) - began)
    await page.close()
    words = f"median {median(seconds):.2f} s, longest {max(seconds):.2f} s"
    return f"{CHANGES} changes by SQL on an open page: {words} after the commit"


async def seconds_of_a_demo(folder: Path) -> list[str]:
    """Return how soon the page of a running demo has the verdict on its bad version, and a rollback by SQL."""
    with a_demo(folder) as (_, running):
        async with visiting(running) as visit, connected(running["database_url"]) as database:
            opened = OpenPage(visit, rollout_path(_MODEL, await open_rollout(database, 0)))
            verdict_at = await opened.until("", "rolled back at")
            await opened.close()
            [(first, committed_at)] = await database.fetch(_ROLLED_BACK, _MODEL)
            rollback = await seconds_of_a_rollback(database, visit, first)
    verdict, page = verdict_at - committed_at, "on the open page of a demo"
    return [
        f"a verdict {page}: {verdict:.2f} s after its event's commit (at most {VERDICT_SECONDS:g})",
        f"a rollback by SQL {page}: {rollback:.2f} s after its commit (at most {ROLLBACK_SECONDS:g})",
    ]


async def seconds_of_a_rollback(database: asyncpg.Connection, visit: Visit, after: int) -> float:
    """Take the demo's next version back by SQL, and return how soon its open page says so."""
    reason = "taken back by hand."
    opened = OpenPage(visit, rollout_path(_MODEL, await open_rollout(database, after)))
    await opened.until("", "Roll back")
    await database.execute("SELECT understudy_rollback($1, $2)", _MODEL, reason)
    began = time.time()
    seconds = await opened.until("/story", reason) - began
    await opened.close()
    return seconds


async def open_rollout(database: asyncpg.Connection, after: int) -> int:
    """Wait for the next rollout that has a share of the calls, and return its number."""
    while (number := await database.fetchval(_OPEN, _MODEL, after)) is None:  # noqa: ASYNC110 - begun by a process
        await asyncio.sleep(0.05)
    return int(number)


@asynccontextmanager
async def visiting(running: dict[str, Any]) -> AsyncIterator[Visit]:
    """Open a session at a demo's console."""
    async with AsyncClient(base_url=running["console"], timeout=60) as client:
        visit = Visit(client, running["console"])
        await visit.sign_in(running["console_key"])
        yield visit


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Open a connection to a demo's database."""
    database = await asyncpg.connect(url)
    try:
        yield database
    finally:
        await database.close()
