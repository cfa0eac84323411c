"""What axe-core finds on the console's pages, by WCAG 2.2 at level AA, in both modes."""

from hashlib import sha256
from importlib.resources import files

import pytest
from console.browser_world import signed_in
from playwright.async_api import Page, expect
from worlds.console import running_console
from worlds.report import reported_world

AXE = (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
SHA256 = "84494fec757e4710dc751c8d7a636e457f4532f08f85c86dc9070133fbff53bc"
"""Of axe-core 4.12.1, which this package carries unchanged, with its licence's notice (MPL-2.0)."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
RUN = "(rules) => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})"
CHURN = "/models/churn"
ACTS = f"{CHURN}/acts"
OF_A_ROLLOUT = (
    "/",
    CHURN,
    f"{ACTS}/rollback",
    f"{ACTS}/promote",
    f"{CHURN}/policy",
    f"{ACTS}/set?generation=3&challenger_weight=60&guard=alert",
    f"{ACTS}/set?generation=3&challenger_weight=101",
    f"{CHURN}/start",
    f"{CHURN}/audit",
    f"{ACTS}/restore?from=1",
    f"{CHURN}/versions",
    f"{CHURN}/rollouts/1/verdicts",
    "/health",
    "/?",  # with what Health has found by then
    f"{CHURN}?",
    "/nothing",
)
OF_REPORTS = (
    "/find?q=customer-42",
    f"{CHURN}/entities/cust-1",
    f"{CHURN}/experiments",
    f"{CHURN}/experiments/new",
    f"{ACTS}/declare?metric=converted&effect=60%25&looks=2&within=1h",
    f"{CHURN}/drift",
    f"{CHURN}/shadow",
)


def test_the_judge_is_the_one_that_was_pinned():
    assert sha256(AXE.encode()).hexdigest() == SHA256
    assert "Mozilla Public" in AXE[:700]


async def violations(page: Page, url: str) -> list[tuple[str, str, list[str]]]:
    """Return what is wrong with a page: the rule, in words, and where."""
    await page.goto(url)
    await expect(page.locator("h1")).to_have_count(1)
    await page.evaluate(AXE)  # over the debugger's connection, which no policy of the page binds
    found = await page.evaluate(RUN, RULES)
    return [(one["id"], one["help"], [node["html"][:160] for node in one["nodes"]]) for one in found["violations"]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_of_a_rollout_breaks_a_rule(browser, rollout, database_url, scheme):
    async with running_console(database_url) as console:
        async with signed_in(browser, console, color_scheme=scheme) as page:
            found = {path: await violations(page, console.origin + path) for path in OF_A_ROLLOUT}
        context = await browser.new_context(color_scheme=scheme)
        found["/login"] = await violations(await context.new_page(), f"{console.origin}/login?next=/health")
        await context.close()

    assert {path: said for path, said in found.items() if said} == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_of_a_report_breaks_a_rule(browser, database, database_url, scheme):
    await reported_world(database)
    async with running_console(database_url) as console, signed_in(browser, console, color_scheme=scheme) as page:
        found = {path: await violations(page, console.origin + path) for path in OF_REPORTS}

    assert {path: said for path, said in found.items() if said} == {}
