"""What a reader does in a browser: Debian's Chromium, driven as a page's marks say."""

import re
import shutil
from collections.abc import Callable
from typing import NamedTuple

from playwright.sync_api import Page, expect, sync_playwright

PATIENCE_MS = 60_000
_ACTION = re.compile(
    r"(?:(?P<follow>follow the link of) (?P<terminal>\w+)"
    r"|(?P<press>press) (?P<pressed>.+)"
    r"|(?P<fill>fill) (?P<filled>.+?) with (?P<typed>.+)"
    r"|(?P<choose>choose) (?P<chosen>.+?) in (?P<list>.+)"
    r"|(?P<see>see) (?P<seen>.+))"
)
_LINK = re.compile(r"http://\S+/login\?once=\S+")


class Action(NamedTuple):
    """One thing that a reader does in the browser, or sees there."""

    verb: str
    what: str
    value: str = ""

    @property
    def named(self) -> list[str]:
        """What the page has to name, or its reader would not know it."""
        return (
            [] if self.verb == "follow the link of" else [self.what, *([self.value] if self.verb == "choose" else [])]
        )


def action_of(text: str) -> Action | None:
    """Return what a mark says; ``None`` where it says nothing that can be done."""
    found = _ACTION.fullmatch(text)
    if found is None:
        return None
    if found["follow"]:
        return Action(found["follow"], found["terminal"])
    if found["press"]:
        return Action(found["press"], found["pressed"])
    if found["fill"]:
        return Action(found["fill"], found["filled"], found["typed"])
    return Action(found["choose"], found["list"], found["chosen"]) if found["choose"] else Action("see", found["seen"])


class OpenBrowser:
    """A browser with one page; it is opened by the first action.

    Args:
        said: Returns what a terminal has shown.
    """

    def __init__(self, said: Callable[[str], str]) -> None:
        self._said = said
        self._page: Page | None = None

    def do(self, action: Action) -> None:
        """Do it, or wait until it is seen.

        Raises:
            AssertionError: It is not there in time.
        """
        page = self._opened()
        match action.verb:
            case "press":
                link, button = page.get_by_role("link", name=action.what), page.get_by_role("button", name=action.what)
                link.or_(button).first.click()
            case "fill":
                page.get_by_label(action.what, exact=True).or_(page.get_by_label(action.what)).first.fill(action.value)
            case "choose":
                page.get_by_label(action.what, exact=True).select_option(action.value)
            case "see":
                expect(page.get_by_text(action.what).first).to_be_visible(timeout=PATIENCE_MS)
            case _:
                links = _LINK.findall(self._said(action.what))
                assert links, "the terminal shows no link that signs in"
                page.goto(links[-1])

    def close(self) -> None:
        """End the browser."""
        if self._page is not None:
            self._browser.close()
            self._driver.stop()
            self._page = None

    def _opened(self) -> Page:
        if self._page is None:
            chromium = shutil.which("chromium")
            assert chromium is not None, "Debian's chromium is missing: apt-get install chromium"
            self._driver = sync_playwright().start()
            self._browser = self._driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            self._page = self._browser.new_page()
            self._page.set_default_timeout(PATIENCE_MS)
        return self._page
