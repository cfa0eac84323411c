"""The charts of an open page: they come by themselves, and are asked for until they were drawn after the end."""

from console.browser_world import Heard, signed_in
from playwright.async_api import Page, expect
from worlds.console import running_console

from understudy.entrypoints.console.pages import charts, rollouts

COME_MS, RENEWED_MS = 20_000, 40_000
STORIES, STORY_SECONDS, CHARTS_SECONDS = 4, 1.0, 5.0
"""While the story is asked for so often, the charts would be once; a fifth of the console's own periods."""


async def test_charts_come_once_and_are_not_asked_for_after_the_end(
    browser, rollout, database_url, database, monkeypatch
):
    monkeypatch.setattr(rollouts, "STORY_SECONDS", STORY_SECONDS)
    monkeypatch.setattr(charts, "CHARTS_SECONDS", CHARTS_SECONDS)
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        await page.route("**/stream", lambda route: route.abort())  # with a stream nothing is asked for at a period
        heard = Heard(page, console.origin)
        await page.get_by_role("link", name="churn").click()
        await expect(page.locator("#charts-again")).to_be_attached(timeout=COME_MS)
        heard.asked.clear()
        await stories(page)
        asked_for = sum("/charts" in one for one in heard.asked)
        await database.execute("SELECT understudy_rollback('churn', 'enough')")
        await rollout.go_on(1)
        await expect(page.locator("#drawn [hx-get]")).to_have_count(0, timeout=RENEWED_MS)
        heard.asked.clear()
        await stories(page)

        assert asked_for <= 2
        assert [one for one in heard.asked if "/charts" in one] == []
        assert heard.complaints == []


async def stories(page: Page) -> None:
    for _ in range(STORIES):
        await page.wait_for_event("request", lambda asked: "/story" in asked.url)
