"""Pictures of the console for the documentation, from a running console over a real rollout: ``make console-pictures``.

Each is made by Debian's Chromium in three looks, and rewrites its file in ``docs/images/console``.
"""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from command import CommandLine
from console.small_png import with_palette
from contract.servers import TcpRelay
from playwright.async_api import Browser, FloatRect, Page, expect
from rich.console import Console
from rich.text import Text
from worlds.console import RunningConsole, closed_port, running_console
from worlds.rollout import TWINS, WORSE, PastRollout

FOLDER = Path(__file__).parents[2] / "docs/images/console"
WIDE, PHONE = {"width": 1_000, "height": 900}, {"width": 390, "height": 844}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": WIDE},
    "dark": {"color_scheme": "dark", "viewport": WIDE},
    "phone": {"color_scheme": "light", "viewport": PHONE},
}
TALLEST = {"light": 1_900, "dark": 1_900, "phone": 2_200}
"""Pixels; what is below is left out."""
SETTLED_MS = 30_000
COLUMNS = 110
ELSEWHERE = re.compile(r"@font-face \{.*?\}\n|<!--.*?-->\n", re.DOTALL)
"""What rich would have a browser load from another host, and its own address."""
pytestmark = pytest.mark.timeout(1_200)
AWAY, STALE = "postgres-away", "No new figures"
World = Callable[[asyncpg.Connection, str], Awaitable[PastRollout]]


async def calm(database: asyncpg.Connection, url: str) -> PastRollout:
    past = PastRollout(database, url, TWINS, 60 * 8 + 20)
    await past.begin()
    await past.go_on(8)
    return past


async def failing(database: asyncpg.Connection, url: str) -> PastRollout:
    past = PastRollout(database, url, WORSE, 60 * 9 + 20)
    await past.begin()
    await past.go_on(6)
    for _ in range(3):
        await past.go_unwatched(1)
    return past


async def rolled_back(database: asyncpg.Connection, url: str) -> PastRollout:
    past = PastRollout(database, url, WORSE, 60 * 14)
    await past.begin()
    await past.go_on(14)
    return past


async def waiting(database: asyncpg.Connection, url: str) -> PastRollout:
    past = PastRollout(database, url, TWINS, 60 * 8 + 20)
    await past.begin()
    await past.go_on(7)
    ordered = ("rollout", "pause", "churn", "--yes", "--reason", "risk team looks at the new segment")
    said = await CommandLine(url).beside(*ordered)
    assert said.code == 0, said.err
    await past.go_on(1)
    return past


WORLDS: dict[str, World] = {
    "calm": calm,
    "failing": failing,
    "rolled-back": rolled_back,
    "waiting": waiting,
    AWAY: calm,
}


@asynccontextmanager
async def signed_in(browser: Browser, console: RunningConsole, key: str, look: str) -> AsyncIterator[Page]:
    async with await browser.new_context(**LOOKS[look]) as context:
        page = await context.new_page()
        # The world of a picture has neither proxies nor model servers, of which Health would tell.
        await page.route("**/trouble*", lambda asked: asked.abort())
        await page.goto(f"{console.origin}/login")
        await page.get_by_label("Key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await page.goto(f"{console.origin}/models/churn")
        await expect(page.locator("figure.chart").first).to_be_visible(timeout=SETTLED_MS)
        yield page


async def take(page: Page, state: str, look: str) -> None:
    """Write one picture: of figures that are stale where that is the state, and of no others."""
    stale = page.locator("[data-stale]")
    await expect(stale).to_have_count(1 if state == AWAY else 0, timeout=SETTLED_MS)
    await expect(page.locator("#heard")).to_have_text(STALE if state == AWAY else "live", timeout=SETTLED_MS)
    size = await page.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
    area = FloatRect(x=0, y=0, width=size[0], height=min(size[1], TALLEST[look]))
    shot = await page.screenshot(full_page=True, clip=area, animations="disabled")
    (FOLDER / f"{state}-{look}.png").write_bytes(await asyncio.to_thread(with_palette, shot))


@pytest.mark.parametrize("state", WORLDS)
async def test_a_state_is_pictured(
    browser: Browser, database: asyncpg.Connection, database_url: str, state: str
) -> None:
    await WORLDS[state](database, database_url)
    # A monitor that leads, and is not silent while the pictures are taken.
    await database.execute(
        "INSERT INTO MonitorLease (name, holder, epoch, renewed_at)"
        " VALUES ('monitor', 'pod-a', 1, clock_timestamp() + INTERVAL '1 hour')"
    )
    own = urlsplit(database_url)
    async with TcpRelay(own.port or 5432) as relay, AsyncExitStack() as stack:
        through = own._replace(netloc=f"{own.username}@{relay.endpoint}").geturl()
        console = await stack.enter_async_context(running_console(through))
        key = await console.key("read", "operate")
        # All looks are open at once: one that came later would show another moment.
        pages = [await stack.enter_async_context(signed_in(browser, console, key, look)) for look in LOOKS]
        if state == AWAY:
            relay.lead_to(closed_port())
            relay.cut()
        for page, look in zip(pages, LOOKS, strict=True):
            await take(page, state, look)


async def test_the_terminal_is_pictured(database: asyncpg.Connection, database_url: str) -> None:
    """The real output of ``rollout show``, as rich exports it."""
    await rolled_back(database, database_url)
    colours = {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1", "NO_COLOR": ""}
    said = await CommandLine(database_url).beside("rollout", "show", "churn", **colours)
    assert said.code == 0, said.err
    screen = Console(record=True, width=COLUMNS, file=io.StringIO())
    screen.print(Text.from_ansi(said.out))
    drawn = screen.export_svg(title="understudy rollout show churn", unique_id="terminal")
    (FOLDER / "terminal.svg").write_text(ELSEWHERE.sub("", drawn))
