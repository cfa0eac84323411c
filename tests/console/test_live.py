"""An open page in a browser: told by its stream, asking by itself without one, and out with its key."""

from console.browser_world import Heard, signed_in
from playwright.async_api import Page, expect
from worlds.console import running_console

from understudy.entrypoints.console.pages import health, models, rollouts
from understudy.entrypoints.console.streams.watches import WATCHES

CHURN = "/models/churn"
A_MONITOR_LEADS = """
    INSERT INTO MonitorLease (name, holder, epoch, renewed_at) VALUES ('monitor', 'm-1', 1, now() + INTERVAL '1 hour')
"""
SEEN_MS = 60_000
"""Longest wait of anything; what is measured is not how long it takes but by what it comes."""


async def streams(page: Page) -> None:
    """Wait until the page's script was told something by its stream."""
    async with page.expect_request(lambda one: one.url.endswith("/stream"), timeout=SEEN_MS):
        await page.reload()
    await expect(page.locator("#heard")).to_have_text("live", timeout=SEEN_MS)


def polls(heard: Heard, path: str) -> int:
    return sum(asked.startswith(f"/live{path}?") for asked in heard.asked)


async def test_a_page_with_a_stream_shows_a_rollback_by_sql_though_nothing_is_read_at_a_period(
    browser, rollout, database, database_url, monkeypatch
):
    for module, period in ((rollouts, "ROLLOUT_SECONDS"), (models, "MODELS_SECONDS")):
        monkeypatch.setattr(module, period, 3_600.0)  # also of the page: it does not ask within the test
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        heard = Heard(page, console.origin)
        await page.goto(f"{console.origin}{CHURN}/rollouts/{rollout.id}")
        await streams(page)
        await page.evaluate("window.wasHereBefore = true")
        await expect(page.locator("#told")).to_be_empty()  # its figures alone have changed
        await database.execute("SELECT understudy_rollback('churn', 'enough')")
        await expect(page.get_by_role("cell", name="enough")).to_be_visible(timeout=SEEN_MS)
        await rollout.go_on(1)
        await database.execute("UPDATE ServingPolicy SET shadow_percent = 50")  # it is told of policies, not of events
        await expect(page.get_by_role("alert")).to_contain_text("rolled back by hand", timeout=SEEN_MS)
        await expect(page.locator("#heard")).to_have_text("live")

        assert await page.evaluate("window.wasHereBefore")
        assert (heard.complaints, heard.elsewhere) == ([], [])


async def test_an_open_page_tells_what_health_finds_and_that_it_is_over(
    browser, rollout, database, database_url, monkeypatch
):
    monkeypatch.setattr(health, "TROUBLE_SECONDS", 1.0)
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        heard = Heard(page, console.origin)
        await page.goto(f"{console.origin}{CHURN}/rollouts/{rollout.id}")
        trouble, link = page.locator("[data-trouble]"), page.locator("#trouble").get_by_role("link", name="Health")
        await expect(trouble).to_contain_text("none leads", timeout=SEEN_MS)
        await expect(link).to_have_attribute("href", "/health")
        await page.evaluate("window.wasHereBefore = true")
        await database.execute(A_MONITOR_LEADS)
        await expect(trouble).not_to_contain_text("none leads", timeout=SEEN_MS)
        await database.execute("UPDATE MonitorLease SET renewed_at = now() - INTERVAL '1 hour'")
        await expect(page.locator("#told")).to_contain_text("monitor", timeout=SEEN_MS)  # to who listens, once

        assert await page.evaluate("window.wasHereBefore")
        assert (heard.complaints, heard.elsewhere) == ([], [])


async def test_a_page_without_a_stream_asks_by_itself_and_shows_the_rollback_too(
    browser, rollout, database, database_url
):
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        await page.route("**/stream", lambda route: route.abort())
        heard = Heard(page, console.origin)
        path = f"{CHURN}/rollouts/{rollout.id}"
        await page.goto(console.origin + path)
        await database.execute("SELECT understudy_rollback('churn', 'enough')")
        await expect(page.get_by_role("cell", name="enough")).to_be_visible(timeout=SEEN_MS)

        assert polls(heard, path) > 0


async def test_a_hidden_page_closes_its_stream_and_one_that_is_seen_again_opens_it(browser, rollout, database_url):
    path = f"{CHURN}/rollouts/{rollout.id}"
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        await page.goto(console.origin + path)
        await streams(page)
        watches = console.server.lifespan.state[WATCHES]
        await turn(page, is_hidden=True)
        while watches.viewers:
            await page.wait_for_timeout(50)
        async with page.expect_request(lambda one: one.url.endswith("/stream"), timeout=SEEN_MS):
            await turn(page, is_hidden=False)


async def turn(page: Page, *, is_hidden: bool) -> None:
    """Have the page believe that its tab is hidden, or seen again."""
    value = "true" if is_hidden else "false"
    await page.evaluate(f"Object.defineProperty(document, 'hidden', {{value: {value}, configurable: true}})")
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
