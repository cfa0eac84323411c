"""Who may ask for what: each route of the router, with each method, by each kind of key; and who is sent away."""

import asyncio
import re

import pytest
from console.browser_world import signed_in
from playwright.async_api import expect
from worlds.console import Visit, running_console

from understudy.entrypoints.console.app import ROUTES
from understudy.entrypoints.console.pages.login import show_login, sign_in, sign_out

CHURN = "/models/churn"
ACTS = ("rollback", "pause", "resume", "promote", "approve", "abort")
VALUES = {"model": "churn", "entity": "cust-1", "test": "1", "prediction": "019a0000-0000-7000-8000-000000000000"}
PUBLIC = (show_login, sign_in, sign_out)
OUT_SECONDS, LEFT_MS = 3.0, 8_000
"""How soon a revoked key is refused, and how soon a page that is open shows the login."""
HEADERS = {
    "x-forwarded-email": "kim@shop.example",
    "x-forwarded-user": "kim",
    "x-auth-request-email": "kim@shop.example",
    "x-forwarded-groups": "ml-oncall",
    "x-remote-user": "kim",
    "authorization": "Bearer kim",
}
"""What identity proxies send; the console believes none of it, from wherever it comes."""


def addresses(rollout_id: int) -> list[tuple[str, str]]:
    """Return each route's method and an address of it; the route of all acts once for each of them."""
    found = []
    for method, path, handler in ROUTES:
        if handler in PUBLIC:
            continue
        for act in ACTS if "{act}" in path else ("",):
            values = {**VALUES, "rollout": str(rollout_id), "act": act}
            found.append((method, re.sub(r"\{(\w+)\}", lambda name: values[name[1]], path)))  # noqa: B023 - at once
    return found


async def status(visit: Visit, method: str, path: str, token: str = "") -> int | str:
    """Return what a request is answered with; ``login`` where it is led there."""
    if method == "POST":
        answer = await visit.post(path, {"token": token, "nonce": "n"})
    else:
        answer = await visit.get(path)
    is_led = answer.status_code == 303 and answer.headers["location"].startswith("/login")
    return "login" if is_led else answer.status_code


async def statuses(visit: Visit, rollout_id: int) -> dict[tuple[str, str], int | str]:
    token = await visit.form_token()
    return {one: await status(visit, *one, token) for one in addresses(rollout_id)}


def is_answered(said: int | str) -> bool:
    """Whether the route did what it is for, or said what is missing for that."""
    return isinstance(said, int) and said in (200, 204, 303, 404, 409, 422)


async def test_every_route_with_every_method_asks_who_comes(rollout, database, database_url):
    await database.execute(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, artifact_digest, framework, input_schema)"
        " VALUES ('fraud', '1', 'file:///m', 'sha256:1', 'sklearn', '{}')"
    )
    before = await database.fetchval("SELECT count(*) FROM PolicyAudit")
    async with running_console(database_url) as console:
        async with console.visit() as stranger:
            stranger.client.headers.update(HEADERS)
            none = await statuses(stranger, rollout.id)
        found = {}
        for scopes in (("read",), ("operate:churn",), ("read:fraud", "operate:fraud")):
            async with console.visit(*scopes) as visit:
                found[scopes[0]] = await statuses(visit, rollout.id)

    for (method, path), said in none.items():
        assert said == ("login" if method == "GET" and not path.startswith("/live/") else 401), path
    for (method, path), said in found["read"].items():
        is_act = "/acts/" in path
        assert (said == 403) == is_act, (method, path, said)
        assert is_act or is_answered(said), (method, path, said)
    for (method, path), said in found["operate:churn"].items():
        assert (said == 403) == path.endswith("/health"), (method, path, said)
        assert is_answered(said) or said == 403, (method, path, said)
    for (method, path), said in found["read:fraud"].items():
        assert (said == 403) == ("churn" in path or path.endswith("/health")), (method, path, said)
    assert (
        await database.fetchval("SELECT count(*) FROM PolicyAudit") == before + 1
    )  # the rollback, which needs no more


async def test_a_key_that_only_reads_is_shown_no_form_of_an_act(rollout, database_url):
    async with running_console(database_url) as console, console.visit("read") as visit:
        pages = [await visit.get(path) for method, path in addresses(rollout.id) if method == "GET"]

    for page in pages:
        own = page.text.replace('action="/logout"', "")
        assert "/acts/" not in own, page.url
        assert own.count('method="post"') == (page.status_code != 204 and 'class="who"' in own), page.url


async def test_a_revoked_key_is_out_within_three_seconds_and_its_open_page_with_it(
    browser, rollout, database, database_url
):
    async with running_console(database_url) as console, signed_in(browser, console) as page:
        await page.goto(f"{console.origin}{CHURN}/rollouts/{rollout.id}")
        await expect(page.locator("#heard")).to_have_text("live", timeout=LEFT_MS)
        async with console.visit() as visit:
            cookies = {one["name"]: one["value"] for one in await page.context.cookies()}
            visit.client.cookies.update(cookies)
            assert (await visit.get("/")).status_code == 200
            await database.execute("UPDATE ApiKey SET revoked_at = now()")
            seconds = await seconds_until_out(visit)
        await expect(page.get_by_label("Key")).to_be_visible(timeout=LEFT_MS)

    assert seconds <= OUT_SECONDS


async def seconds_until_out(visit: Visit) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (await visit.get("/")).status_code == 200:  # noqa: ASYNC110 - no event tells it
        await asyncio.sleep(0.1)
    return loop.time() - began


@pytest.mark.parametrize("path", ["/nothing", "/models/none", f"{CHURN}/rollouts/999"])
async def test_the_page_of_an_error_keeps_the_search_and_the_sign_out(rollout, database_url, path):
    async with running_console(database_url) as console, console.visit("read") as visit, console.visit() as stranger:
        page, unknown = await visit.get(path), await stranger.get("/nothing")
        out = await visit.post("/logout", {"token": page.text.partition('name="token" value="')[2].partition('"')[0]})

    assert page.status_code == 404
    assert 'role="search"' in page.text
    assert "Sign out" in page.text
    assert (unknown.status_code, "Sign out" in unknown.text) == (404, False)
    assert out.status_code == 303
