"""Who is let in beside who has a key: by a link, by a proxy in front, and with a session of an earlier secret."""

import asyncio
import time

import asyncpg
import httpx2
import pytest
from pydantic import SecretStr
from worlds.console import SECRET, RunningConsole, Visit, running_console
from worlds.rollout import two_versions

from understudy.adapters.postgres.registry.key_lookup import PostgresKeyLookup
from understudy.entrypoints.console.access.identity import SECRET_HEADER
from understudy.errors import RegistryUnavailable
from understudy.registry.console_link import console_link, signing_secret

CHURN = "/models/churn"
SHARED = "a secret that the proxy and the console share"
PROXIED = {
    "console_identity_header": "X-Forwarded-Email",
    "console_groups_header": "X-Forwarded-Groups",
    "console_trusted_proxies": "127.0.0.0/8",
    "console_proxy_secret": SecretStr(SHARED),
    "console_roles": "ml-oncall=operate,everyone=read",
}
KIM = {SECRET_HEADER: SHARED, "x-forwarded-email": "kim@shop.example"}


@pytest.fixture(autouse=True)
async def world(database: asyncpg.Connection) -> None:
    await two_versions(database)
    await database.execute(
        "UPDATE ServingPolicy SET challenger_weight = 20,"
        " challenger_version = (SELECT id FROM ModelVersion WHERE version = '7')"
    )


async def the_link(console: RunningConsole, *scopes: str, secret: str = SECRET) -> str:
    key_id, _, _ = (await console.key(*scopes)).partition(".")
    return console_link(signing_secret(secret), key_id, time.time())


async def follow(visit: Visit, link: str) -> httpx2.Response:
    page = await visit.get(f"/login?once={link}")
    assert f'name="once" value="{link}"' in page.text
    return await visit.post("/login", {"once": link, "next": "/"})


async def test_a_link_signs_in_by_its_button_and_once(database_url):
    async with running_console(database_url) as console, console.visit() as visit, console.visit() as other:
        link = await the_link(console, "read", "operate")
        looked = await visit.get(f"/login?once={link}")
        before = await visit.get("/")
        first = await follow(visit, link)
        page, again = await visit.get(f"{CHURN}/acts/rollback"), await follow(other, link)
        foreign = await follow(other, await the_link(console, "read", secret="another secret, which is as long"))
        useless = await follow(other, await the_link(console, "predict"))

    assert (looked.status_code, before.status_code) == (200, 303)  # looking at it signs nobody in
    assert (first.status_code, page.status_code) == (303, 200)
    assert "Roll back" in page.text
    assert [one.status_code for one in (again, foreign, useless)] == [401, 401, 401]
    assert "the link was used, or is older than a minute" in again.text


async def test_a_console_that_others_reach_takes_no_link(database_url):
    given = {"console_host_names": "127.0.0.1", "console_https": False}
    async with running_console(database_url, console_host="0.0.0.0", **given) as console, console.visit() as visit:
        link = await the_link(console, "read")
        page = await visit.get(f"/login?once={link}")
        answer = await visit.post("/login", {"once": link, "next": "/"})

    assert 'name="once"' not in page.text
    assert answer.status_code == 401


async def test_whom_the_proxy_names_acts_by_the_groups_and_the_audit_has_the_name(database, database_url):
    async with running_console(database_url, **PROXIED) as console, console.visit() as visit:
        visit.client.headers.update({**KIM, "x-forwarded-groups": "ml-oncall"})
        page = await visit.get(f"{CHURN}/acts/rollback")
        done = await visit.post(f"{CHURN}/acts/rollback", await visit.form(f"{CHURN}/acts/rollback"))
        forged = await visit.post(f"{CHURN}/acts/rollback", {"token": "x", "nonce": "n"})

    assert "The audit will name proxy:kim@shop.example." in page.text
    assert ("Sign out" in page.text, "set-cookie" in page.headers) == (False, False)
    assert (done.status_code, forged.status_code) == (303, 403)
    row = await database.fetchrow("SELECT actor, via FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert tuple(row) == ("proxy:kim@shop.example", "console")


async def test_whom_the_proxy_names_without_groups_looks_and_acts_on_nothing(database_url):
    async with running_console(database_url, **PROXIED) as console, console.visit() as visit:
        visit.client.headers.update(KIM)
        page, act = await visit.get(f"{CHURN}/policy"), await visit.get(f"{CHURN}/acts/rollback")

    assert (page.status_code, act.status_code) == (200, 403)
    assert "You may look" in page.text


@pytest.mark.parametrize(
    ("given", "headers"),
    [
        ({"console_trusted_proxies": "10.0.0.0/8"}, KIM),
        ({}, {**KIM, SECRET_HEADER: SHARED[:-1]}),
        ({}, {"x-forwarded-email": "kim@shop.example"}),
        ({"console_roles": "ml-oncall=operate"}, KIM),
    ],
    ids=["another address", "another secret", "no secret", "no group"],
)
async def test_who_is_not_named_by_the_proxy_is_led_to_the_login(database_url, given, headers):
    async with running_console(database_url, **{**PROXIED, **given}) as console, console.visit() as visit:
        page = await visit.get("/", **headers)

    assert (page.status_code, page.headers["location"].startswith("/login")) == (303, True)


@pytest.mark.parametrize("headers", [{}, KIM], ids=["not named", "named, and in no group"])
async def test_a_key_is_good_beside_a_proxy(database_url, headers):
    given = {**PROXIED, "console_roles": "ml-oncall=operate"}
    async with running_console(database_url, **given) as console, console.visit() as visit:
        visit.client.headers.update(headers)
        login = await visit.get("/login")
        await visit.sign_in(await console.key("read"))
        page = await visit.get("/")

    assert ("kim@shop.example is in no group that may look" in login.text) == bool(headers)
    assert "Sign out" in page.text


async def test_a_link_that_postgres_was_away_for_is_good_still(database_url, monkeypatch):
    looked_up = PostgresKeyLookup.find
    async with running_console(database_url) as console, console.visit() as visit:
        link = await the_link(console, "read")

        async def away(_self: PostgresKeyLookup, _key_id: str) -> None:
            raise RegistryUnavailable("away")

        monkeypatch.setattr(PostgresKeyLookup, "find", away)
        refused = await follow(visit, link)
        monkeypatch.setattr(PostgresKeyLookup, "find", looked_up)
        taken = await follow(visit, link)

    assert (refused.status_code, taken.status_code) == (503, 303)


async def test_of_two_clicks_on_a_link_at_once_one_signs_in(database_url):
    async with running_console(database_url) as console, console.visit() as one, console.visit() as other:
        link = await the_link(console, "read")
        answers = await asyncio.gather(*(visit.post("/login", {"once": link, "next": "/"}) for visit in (one, other)))

    assert sorted(answer.status_code for answer in answers) == [303, 401]


async def test_sessions_and_forms_outlive_the_secret_that_is_replaced(database, database_url):
    new, old = SecretStr("the secret that takes the place of the first"), SecretStr(SECRET)
    async with running_console(database_url) as console, console.visit("operate") as visit:
        cookies, form = visit.client.cookies, await visit.form(f"{CHURN}/acts/rollback")
    async with (
        running_console(database_url, console_secret=new, console_secret_before=old) as console,
        console.visit() as visit,
    ):
        visit.client.cookies.update(cookies)
        page, done = await visit.get("/"), await visit.post(f"{CHURN}/acts/rollback", form)
    async with running_console(database_url, console_secret=new) as console, console.visit() as visit:
        visit.client.cookies.update(cookies)
        over = await visit.get("/")

    assert (page.status_code, done.status_code, over.status_code) == (200, 303, 303)
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
