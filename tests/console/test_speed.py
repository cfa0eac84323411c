"""How fast a rollout's page is there: figures of a browser on the same machine, and of the server alone."""

import gzip
import os
import shutil
import sys
import time

import asyncpg
import pytest
from playwright.async_api import async_playwright
from worlds.console import RunningConsole, Visit, running_console
from worlds.rollout import TWINS, PastRollout

CHROMIUM = shutil.which("chromium")
MINUTES = 75
"""Of a rollout with 300 windows a side."""
ROUNDS = 30
MAX_REQUESTS, MAX_BYTES = 12, 120_000
SERVER_SECONDS, SERVER_SECONDS_COLD, PAINT_MS = 0.06, 0.6, 400
FIRST_PAINT = """new Promise(done => new PerformanceObserver(seen => done(seen.getEntries()[0].startTime))
    .observe({type: "paint", buffered: true}))"""
LOAD_FACTOR = 10
"""A machine that others share is slower; the bounds themselves are read in what is printed."""


async def test_a_rollouts_page_is_small_and_soon_there(
    database: asyncpg.Connection, database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    past = PastRollout(database, database_url, TWINS, 60.0 * MINUTES + 30)
    await past.begin()
    await past.go_on(2)
    for _ in range(MINUTES - 2):
        await past.go_unwatched(1)
    path = f"/models/churn/rollouts/{past.id}"

    async with running_console(database_url) as console:
        cold, cold_core, p95 = await of_server(console, path)
        paint, requests, packed = await of_browser(console, path)

    with capsys.disabled():
        sys.stdout.write(
            f"\nfirst paint {paint:.0f} ms, {requests} requests, {packed / 1000:.1f} KB gz; "
            f"server p95 {1000 * p95:.0f} ms with what it knows, {1000 * cold:.0f} ms at first"
            f" ({1000 * cold_core:.0f} ms of a core; load {os.getloadavg()[0]:.0f})\n"
        )
    assert requests <= MAX_REQUESTS
    assert packed <= MAX_BYTES
    assert paint <= LOAD_FACTOR * PAINT_MS
    assert p95 <= LOAD_FACTOR * SERVER_SECONDS
    assert cold <= LOAD_FACTOR * SERVER_SECONDS_COLD


async def of_server(console: RunningConsole, path: str) -> tuple[float, float, float]:
    """Return how long the first page took, in seconds of the clock and of a core, and 95 % of those after it."""
    async with console.visit("read") as visit:
        used = time.process_time()
        cold = await seconds_of(visit, path)
        used = time.process_time() - used
        while "The charts are not ready yet" in (await visit.get(f"/live{path}/charts")).text:
            pass
        taken = [await seconds_of(visit, path) for _ in range(ROUNDS)]
    return cold, used, sorted(taken)[round(0.95 * ROUNDS) - 1]


async def seconds_of(visit: Visit, path: str) -> float:
    began = time.perf_counter()
    answer = await visit.get(path)
    assert answer.status_code == 200
    return time.perf_counter() - began


async def of_browser(console: RunningConsole, path: str) -> tuple[float, int, int]:
    """Return when something is painted, in milliseconds, what the page asks for, and its bytes compressed."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await (await browser.new_context()).new_page()
        await page.goto(f"{console.origin}/login")
        await page.get_by_label("Key").fill(await console.key("read"))
        await page.get_by_role("button", name="Sign in").click()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(console.origin + path)
        paint = float(await page.evaluate(FIRST_PAINT))
        first = [url for url in asked if "/live/" not in url]
        # Without the files that the browser has kept since the login, which the first visit of all asks for.
        style = await page.evaluate("[...document.querySelectorAll('link, script')].map(one => one.href || one.src)")
        bodies = [await (await page.context.request.get(url)).body() for url in {*first, *style}]
        await browser.close()
    return paint, len({*first, *style}), sum(len(gzip.compress(body)) for body in bodies)
