"""A real browser that visits a console: Debian's Chromium, what it asked for, and who signed in."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Browser, Page, expect
from worlds.console import RunningConsole

CHROMIUM = shutil.which("chromium")
WIDTHS = (320, 390, 640, 1_200)
"""640 is what a window of 1,280 has at a zoom of 200 %."""
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_CUT = """
    [...document.querySelectorAll('body *')].filter((one) => {
        const style = getComputedStyle(one);
        const hides = ['hidden', 'clip'].includes(style.overflowX) && !one.closest('.unseen, svg');
        return hides && one.scrollWidth > one.clientWidth + 1;
    }).map((one) => one.outerHTML.slice(0, 200))
"""


class Heard:
    """What a page asked for and complained of."""

    def __init__(self, page: Page, origin: str) -> None:
        self.complaints: list[str] = []
        self.elsewhere: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda said: self._note(said.type, said.text))
        page.on("pageerror", lambda problem: self.complaints.append(str(problem)))
        page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        page.on("request", lambda asked: self._ask(asked.url, origin))

    def _note(self, kind: str, text: str) -> None:
        # Chromium says each 4xx of a page as an error, and the page of one is asked for on purpose.
        if kind in {"error", "warning"} and "Failed to load resource" not in text:
            self.complaints.append(text)

    def _ask(self, url: str, origin: str) -> None:
        self.asked.append(url.removeprefix(origin))
        if not url.startswith(origin):
            self.elsewhere.append(url)


@asynccontextmanager
async def signed_in(browser: Browser, console: RunningConsole, **options: Any) -> AsyncIterator[Page]:
    """Open a page of a session that may read and operate."""
    async with await browser.new_context(**options) as context:
        page = await context.new_page()
        await page.goto(f"{console.origin}/login")
        await page.get_by_label("Key").fill(await console.key("read", "operate"))
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", name="Models")).to_be_visible()
        yield page


async def is_fitting(page: Page, path: str) -> None:
    """Go on only where no width has the page scroll sideways, or cut anything off."""
    for width in WIDTHS:
        await page.set_viewport_size({"width": width, "height": 800})
        assert await page.evaluate(_TOO_WIDE) <= 0, (path, width)
        assert await page.evaluate(_CUT) == [], (path, width)
