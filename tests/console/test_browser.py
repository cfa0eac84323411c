"""The console in a real browser: Debian's Chromium, driven by Playwright. ``make test-console`` runs it."""

import re

import pytest
from console.browser_world import Heard, is_fitting, signed_in
from playwright.async_api import expect
from worlds.console import running_console
from worlds.report import reported_world
from worlds.rollout import two_versions

from understudy.entrypoints.console.pages import models

CHURN = "/models/churn"
ACTS = f"{CHURN}/acts"
PAGES = (
    "/",
    CHURN,
    f"{ACTS}/rollback",
    f"{ACTS}/promote",
    f"{CHURN}/policy",
    f"{ACTS}/set?generation=3&challenger_weight=60&shadow=99",
    f"{ACTS}/set?generation=3&challenger_weight=60&guard=alert",
    f"{CHURN}/start",
    f"{ACTS}/start?version=7&plan=2,10,100",
    f"{CHURN}/audit",
    f"{CHURN}/versions",
    f"{CHURN}/experiments",
    f"{CHURN}/experiments/new",
    f"{ACTS}/restore?from=1",
    "/find?q=customer-42",
    "/health",
    "/?",  # with what Health has found by then
    f"{CHURN}?",
    "/nothing",
)
MOST_KEYS = 8
"""From the top of the rollout page to a rollback, by keyboard alone."""
FIRST_SCREEN = 800
"""Pixels of a laptop's height, which a page has before anything is scrolled."""
LIVE_MS, LOST_MS = 15_000, 30_000


async def test_pages_fit_every_width_in_both_modes_and_nothing_is_asked_of_another_host(browser, rollout, database_url):
    async with running_console(database_url) as console:
        for scheme in ("light", "dark"):
            async with signed_in(browser, console, color_scheme=scheme) as page:
                heard = Heard(page, console.origin)
                for path in PAGES:
                    await page.goto(console.origin + path)
                    await expect(page.locator("h1")).to_have_count(1)
                    await is_fitting(page, path)
                assert (heard.complaints, heard.elsewhere) == ([], [])


async def test_a_call_is_found_by_its_entity_and_reports_fit_every_width(browser, database, database_url):
    await reported_world(database)
    entity = await database.fetchval("SELECT entity_id FROM PredictionLog ORDER BY predicted_at DESC LIMIT 1")
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, color_scheme="dark") as page,
    ):
        heard = Heard(page, console.origin)
        await page.get_by_label("Entity or prediction id").fill(entity)
        await page.keyboard.press("Enter")
        await expect(page.locator(".verdict")).to_contain_text(f"{entity} gets ")
        await is_fitting(page, "entity")
        await page.locator("td.when a").first.click()
        await expect(page.locator(".verdict")).to_contain_text(f"{entity} got score ")
        await is_fitting(page, "prediction")
        for name in ("drift", "shadow"):
            await page.goto(f"{console.origin}{CHURN}/{name}")
            await expect(page.get_by_text("they are computed anew at most once a minute")).to_be_visible()
            await is_fitting(page, name)

        assert (heard.complaints, heard.elsewhere) == ([], [])


async def test_a_test_is_declared_looked_at_and_ended_without_script(browser, database, database_url):
    await reported_world(database)
    async with running_console(database_url) as console, signed_in(browser, console, java_script_enabled=False) as page:
        await page.goto(f"{console.origin}{CHURN}/experiments")
        await page.get_by_role("link", name="Declare a test").click()
        await page.get_by_label("Metric").fill("converted")
        await page.get_by_label("Effect").fill("much")
        await page.get_by_role("button", name="See how long it takes").click()
        await expect(page.get_by_label("Effect")).to_have_accessible_description(re.compile("'much' is no change"))
        await page.get_by_label("Effect").fill("60%")
        await page.get_by_label("Within").fill("1h")
        await page.get_by_role("button", name="See how long it takes").click()
        await expect(page.locator(".verdict")).to_contain_text("Each of two versions needs ")
        await page.get_by_role("button", name="Declare it").click()
        await expect(page.get_by_text("of converted is declared.")).to_be_visible()
        await is_fitting(page, "experiment")
        await page.get_by_role("link", name="End it").click()
        await page.get_by_role("button", name="End it").click()
        await expect(page.get_by_text("is over, and decides nothing.")).to_be_visible()

    assert await database.fetchval("SELECT ended_at IS NOT NULL FROM Experiment")


async def test_a_word_without_end_widens_no_page(browser, database_url, database):
    version, reason = "v" * 90, "W" * 900
    await two_versions(database)
    await database.execute("UPDATE ModelVersion SET version = $1 WHERE version = '7'", version)
    async with database.transaction():
        await database.execute("SELECT set_config('understudy.reason', $1, TRUE)", reason)
        await database.execute("UPDATE ServingPolicy SET shadow_percent = 50")
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, viewport={"width": 390, "height": 800}) as page,
    ):
        for path in (
            f"{CHURN}/audit",
            f"{CHURN}/policy",
            f"{ACTS}/set?generation=2&challenger={version}&challenger_weight=5",
            f"{ACTS}/set?generation=2&guard={'x' * 900}",
            f"{ACTS}/start?version={version}&plan=2,100",
        ):
            await page.goto(console.origin + path)
            widths = await page.evaluate(
                "[document.documentElement, ...document.querySelectorAll('.scroll')]"
                ".map((one) => one.scrollWidth - one.clientWidth)"
            )
            assert max(widths) <= 0, path


async def test_an_open_page_shows_a_rollback_by_sql_without_being_loaded_again(
    browser, rollout, database_url, database
):
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        heard = Heard(page, console.origin)
        await page.get_by_role("link", name="churn").click()
        await expect(page.locator(".verdict")).to_contain_text("Stays at 10 %")
        await expect(page.locator("#heard")).to_have_text("live", timeout=LIVE_MS)
        await page.get_by_text("The same in a terminal").click()
        await page.evaluate("window.wasHereBefore = true")
        await database.execute("SELECT understudy_rollback('churn', 'enough')")
        await expect(page.get_by_role("cell", name="enough")).to_be_visible(timeout=LIVE_MS)

        assert await page.evaluate("window.wasHereBefore")
        assert await page.locator("#story details:not(.on-small)").get_attribute("open") is not None
        assert heard.complaints == []


@pytest.mark.parametrize("has_script", [True, False])
async def test_a_version_is_taken_back_by_keyboard_alone_with_script_and_without(
    browser, rollout, database_url, database, has_script
):
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, java_script_enabled=has_script) as page,
    ):
        await page.goto(f"{console.origin}/models/churn")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        await page.keyboard.press("Enter")
        wanted, keys = page.get_by_role("link", name="Roll back"), 2
        while not await wanted.evaluate("link => link === document.activeElement"):
            await page.keyboard.press("Tab")
            keys += 1
            assert keys < MOST_KEYS
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Roll back now")).to_be_focused()
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Rolled back: weight 0")).to_be_visible()

        assert keys + 2 <= MOST_KEYS
    via = await database.fetchval("SELECT via FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert (via, await database.fetchval("SELECT challenger_weight FROM ServingPolicy")) == ("console", 0)


async def test_the_table_of_models_fits_a_laptop(browser, rollout, database_url):
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, viewport={"width": 1_280, "height": 800}) as page,
    ):
        await page.goto(console.origin)
        box = page.get_by_role("region", name="Models")
        await expect(box.get_by_role("link", name="churn")).to_be_visible()

        assert await box.evaluate("box => box.scrollWidth - box.clientWidth") <= 0


async def test_the_first_screen_of_a_laptop_answers_what_is_asked_first(browser, rollout, database_url):
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, viewport={"width": 1_280, "height": 800}) as page,
    ):
        # The world of this test has no model servers, of which Health would tell above it.
        await page.route("**/trouble*", lambda asked: asked.abort())
        await page.goto(f"{console.origin}{CHURN}")
        last = page.locator(".glance > div").last
        await expect(last).to_contain_text("Way back")
        place = await last.bounding_box()

        assert place is not None
        assert place["y"] + place["height"] <= FIRST_SCREEN


async def test_on_a_phone_the_changes_of_the_policy_are_folded_away(browser, rollout, database_url):
    async with (
        running_console(database_url) as console,
        signed_in(browser, console, viewport={"width": 390, "height": 800}) as page,
    ):
        await page.goto(f"{console.origin}/models/churn")
        changes = page.locator("details.on-small")
        await expect(changes.get_by_role("listitem").first).to_be_hidden()
        await changes.locator("summary").click()
        await expect(changes.get_by_role("listitem").first).to_be_visible()
        await expect(page.locator(".on-wide")).to_be_hidden()


async def test_a_share_is_given_with_the_guards_without_script_and_a_refusal_is_read_at_its_field(
    browser, database, database_url
):
    await two_versions(database)
    async with running_console(database_url) as console, signed_in(browser, console, java_script_enabled=False) as page:
        await page.goto(f"{console.origin}{CHURN}")
        await page.get_by_role("link", name="Policy").click()
        await page.get_by_label("Challenger", exact=True).select_option("7")
        await page.get_by_label("Challenger's share, percent").fill("101")
        await page.get_by_role("button", name="See what it would change").click()
        share = page.get_by_label("Challenger's share, percent")
        await expect(share).to_have_accessible_description(re.compile("is a percentage from 0 to 100, not 101"))
        await expect(share).to_have_value("101")
        await share.fill("20")
        await page.get_by_label("Guard").select_option("alert")
        await page.get_by_role("button", name="See what it would change").click()
        await expect(page.get_by_text("Would change churn; nothing was changed.")).to_be_visible()
        await page.get_by_label("Reason").fill("try it")
        await page.get_by_label("The model's name, typed: churn").fill("churn")
        await page.get_by_role("button", name="Change it").click()
        await expect(page.get_by_text("Done: challenger - → 7, challenger_weight 0 → 20")).to_be_visible()
        await page.get_by_role("link", name="Audit").click()
        await page.get_by_role("link", name="Restore the policy of policy, generation 1").click()
        await expect(page.get_by_text("This moves production traffic: challenger 7 → -")).to_be_visible()

    row = await database.fetchrow("SELECT challenger_weight, guard FROM ServingPolicy")
    assert tuple(row) == (20, "alert")


async def test_a_page_says_since_when_it_is_not_live(browser, rollout, database_url, monkeypatch):
    monkeypatch.setattr(models, "MODELS_SECONDS", 1.0)  # three of them later it says so
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        await expect(page.locator("#heard")).to_have_text("live", timeout=LIVE_MS)
        await page.context.set_offline(True)
        await expect(page.locator("#heard")).to_contain_text("Not live: no answer since", timeout=LOST_MS)
        await page.context.set_offline(False)
        await expect(page.locator("#heard")).to_have_text("live", timeout=LIVE_MS)
