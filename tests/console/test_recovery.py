"""An open page goes on by itself after its console or the monitor was killed, and after Postgres was away.

No rollout notices that.
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg
import httpx2
import pytest
from contract.servers import TcpRelay
from playwright.async_api import Page, expect
from worlds.console import SECRET, a_key, closed_port, running_console

from understudy.adapters.embedded.loopback_ports import free_port

CHURN = "/models/churn"
WAIT_MS = 60_000
START_SECONDS = 60.0
RECOVERED_SECONDS = 10.0
LOAD_FACTOR = 5
"""A machine that others share is slower; the bound itself is read in what is printed."""
SERVE = (sys.executable, "-m", "understudy.entrypoints.cli", "serve")
RENEWED = "[document.getElementById('seen').value, document.getElementById('live').textContent]"
STANDING = """
    SELECT r.phase, r.step, r.revision, p.generation, p.challenger_weight FROM Rollout AS r, ServingPolicy AS p
"""


@asynccontextmanager
async def a_process(kind: str, port: int, **own: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process and wait until it answers; the end of the context kills it at once."""
    process = await asyncio.create_subprocess_exec(*SERVE, kind, env={**os.environ, **own})
    try:
        async with asyncio.timeout(START_SECONDS), httpx2.AsyncClient() as client:
            while True:
                try:
                    await client.get(f"http://127.0.0.1:{port}/livez")
                except httpx2.TransportError:
                    await asyncio.sleep(0.05)
                else:
                    break
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def a_console(database_url: str, port: int) -> AsyncIterator[None]:
    """Run a console of its own."""
    own = {"DATABASE_URL": database_url, "UNDERSTUDY_CONSOLE_PORT": str(port), "UNDERSTUDY_CONSOLE_SECRET": SECRET}
    async with a_process("console", port, **own):
        yield


@asynccontextmanager
async def a_monitor(database_url: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a monitor, which leads or stands by."""
    port = free_port()
    own = {"DATABASE_URL": database_url, "UNDERSTUDY_MONITOR_METRICS_PORT": str(port)}
    async with a_process("monitor", port, **own) as process:
        yield process


async def leader(database: asyncpg.Connection, *, not_this: str | None = None) -> str:
    """Return which monitor leads once another one than this does."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            found = await database.fetchval("SELECT holder FROM MonitorLease")
            if found not in (None, not_this):
                return str(found)
            await asyncio.sleep(0.05)


async def opens(page: Page, origin: str, key: str, path: str) -> None:
    """Sign in, open a page, and wait until it is live."""
    await page.goto(f"{origin}/login")
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("heading", name="Models")).to_be_visible()
    await page.goto(origin + path)
    await page.evaluate("window.wasHereBefore = true")
    await expect(page.locator("#heard")).to_have_text("live", timeout=WAIT_MS)


async def is_lost(page: Page, database: asyncpg.Connection) -> None:
    """Wait until the page says that it is not live, and take the version back meanwhile."""
    await expect(page.locator("#heard")).not_to_have_text("live", timeout=WAIT_MS)
    assert await database.fetchval("SELECT phase FROM Rollout") == "PROGRESSING"
    await database.execute("SELECT understudy_rollback('churn', 'while nothing answered')")


async def goes_on(page: Page, capsys: pytest.CaptureFixture[str], what: str) -> None:
    """Wait until the page has what happened meanwhile, without being loaded again."""
    began = time.monotonic()
    await expect(page.get_by_role("cell", name="while nothing answered").first).to_be_visible(timeout=WAIT_MS)
    await expect(page.locator("#heard")).to_have_text("live", timeout=WAIT_MS)
    seconds = time.monotonic() - began
    await is_in_time(page, capsys, seconds, what)


async def is_in_time(page: Page, capsys: pytest.CaptureFixture[str], seconds: float, what: str) -> None:
    """Say how long a page took, which was not loaded again, and go on only where that is within its bound."""
    with capsys.disabled():
        sys.stdout.write(f"\nan open page went on {seconds:.1f} s after {what} (load {os.getloadavg()[0]:.0f})\n")
    assert await page.evaluate("window.wasHereBefore")
    assert seconds <= LOAD_FACTOR * RECOVERED_SECONDS


async def test_an_open_page_goes_on_after_its_console_was_killed(browser, rollout, database, database_url, capsys):
    port, key = free_port(), await a_key(database_url, "read")
    async with await browser.new_context() as context:
        page = await context.new_page()
        async with a_console(database_url, port):
            await opens(page, f"http://127.0.0.1:{port}", key, f"{CHURN}/rollouts/{rollout.id}")
        await is_lost(page, database)
        async with a_console(database_url, port):
            await goes_on(page, capsys, "its console answered again")


async def test_an_open_page_goes_on_after_postgres_was_away(browser, rollout, database, database_url, capsys):
    own, key = urlsplit(database_url), await a_key(database_url, "read")
    async with TcpRelay(own.port or 5432) as relay, await browser.new_context() as context:
        through = own._replace(netloc=f"{own.username}@{relay.endpoint}").geturl()
        async with running_console(through) as console:
            page = await context.new_page()
            await opens(page, console.origin, key, f"{CHURN}/rollouts/{rollout.id}")
            relay.lead_to(closed_port())
            relay.cut()
            await is_lost(page, database)
            relay.lead_to(own.port or 5432)
            await goes_on(page, capsys, "Postgres answered again")


async def test_an_open_page_goes_on_after_its_monitor_was_killed_and_no_rollout_notices(
    browser, rollout, database, database_url, capsys
):
    key = await a_key(database_url, "read")
    async with (
        a_monitor(database_url) as first,
        running_console(database_url) as console,
        await browser.new_context() as context,
    ):
        page, led = await context.new_page(), await leader(database)
        await opens(page, console.origin, key, f"{CHURN}/rollouts/{rollout.id}")
        before = await database.fetchrow(STANDING)
        async with a_monitor(database_url):  # stands by
            first.kill()
            await leader(database, not_this=led)
            began, (shown, _) = time.monotonic(), await page.evaluate(RENEWED)
            async with asyncio.timeout(START_SECONDS):
                while True:
                    seen, text = await page.evaluate(RENEWED)
                    if seen != shown and re.search(r"monitor [0-3]\ss ago", text):
                        break
                    await asyncio.sleep(0.05)
            await is_in_time(page, capsys, time.monotonic() - began, "another monitor led")
            after = await database.fetchrow(STANDING)
        await expect(page.locator("#heard")).to_have_text("live", timeout=WAIT_MS)

    assert tuple(after) == tuple(before)
