"""Who did what, on pages of the console over a real Postgres: people, the monitor, sessions in SQL, and how long."""

import re
from collections.abc import AsyncIterator

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.rollout import TWINS, PastRollout, two_versions

from understudy.core.rollout.state import Command, CommandKind
from understudy.rollout.commands import run_command

CHURN = "/models/churn"
LUNCH = Command(CommandKind.PAUSE, "ana", "lunch")


@pytest.fixture
async def console(database_url: str) -> AsyncIterator[RunningConsole]:
    async with running_console(database_url) as running:
        yield running


@pytest.fixture
async def past(database: asyncpg.Connection, database_url: str) -> PastRollout:
    """At 10 % for a minute, and two minutes old."""
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(2)
    return past


def cell(page: str, name: str) -> str:
    found = re.search(rf'<td data-name="{name}">([^<]*)</td>', page)
    assert found is not None
    return found[1]


async def test_a_pause_is_what_changed_last_of_a_model_and_stands_in_its_audit(console, past, database):
    moved_by_monitor = await database.fetchval("SELECT updated_by FROM ServingPolicy")
    await run_command(past.store, "churn", past.id, LUNCH)
    async with console.visit("read") as visit:
        models = await visit.get("/")
        pages = {
            asked: await visit.get(f"{CHURN}/audit{asked}")
            for asked in ("", "?who=ana", "?subject=rollout", "?via=rollout", "?subject=policy")
        }

    assert moved_by_monitor == "monitor"
    assert cell(models.text, "changed").endswith(" by ana: rollout paused")
    assert all(is_sound(page.text) for page in pages.values())
    shown = {asked: texts_of(page.text) for asked, page in pages.items()}
    assert {asked: "“lunch”" in texts for asked, texts in shown.items()} == {
        "": True,
        "?who=ana": True,
        "?subject=rollout": True,
        "?via=rollout": False,
        "?subject=policy": False,
    }
    assert any(text.startswith("The newest act on a rollout: ") and text.endswith("by ana.") for text in shown[""])
    assert f'<a href="{CHURN}/rollouts/{past.id}">rollout {past.id}</a>' in pages[""].text
    assert f"understudy rollout show churn {past.id}" in shown[""]


async def test_every_act_is_on_some_page_of_the_audit_once(console, past, database):
    await database.execute(
        "INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version, actor)"
        " SELECT $1, 0, 'WAITING', 'paused by ana: ' || number, '1', 'ana' FROM generate_series(1, 60) AS number",
        past.id,
    )
    reasons, path = [], f"{CHURN}/audit?who=ana"
    async with console.visit("read") as visit:
        while path:
            page = await visit.get(path)
            reasons += re.findall(r"“([0-9]+)”", page.text)
            older = re.search(r'href="([^"]*)">Older changes', page.text)
            path = older[1].replace("&amp;", "&") if older else ""

    assert [int(reason) for reason in reasons] == list(range(60, 0, -1))


async def test_a_change_by_sql_is_told_as_one_and_a_login_of_the_product_as_a_login(console, database):
    await two_versions(database)
    role = await database.fetchval("SELECT session_user")
    await database.execute("UPDATE ServingPolicy SET guard = 'alert'")
    async with database.transaction():
        await database.execute(
            "SELECT set_config('understudy.actor', 'understudy', TRUE), set_config('understudy.via', 'cli', TRUE)"
        )
        await database.execute("UPDATE ServingPolicy SET guard = 'off'")
    async with console.visit("read") as visit:
        models, audit = await visit.get("/"), await visit.get(f"{CHURN}/audit")

    shown = texts_of(audit.text)
    assert any(f" SQL as {role} (" in text for text in shown)
    assert any(" the database login understudy (cli) " in text for text in shown)
    assert cell(models.text, "changed").endswith(" by the database login understudy")


async def test_the_time_of_a_pause_counts_for_the_step_as_the_page_says(console, past, database):
    await run_command(past.store, "churn", past.id, LUNCH)
    await past.go_on(6)
    waiting = await database.fetchval("SELECT challenger_weight FROM ServingPolicy")
    async with console.visit("read") as visit:
        page = await visit.get(f"{CHURN}/rollouts/{past.id}")
    await run_command(past.store, "churn", past.id, Command(CommandKind.RESUME, "ana"))
    await past.go_on(1)

    shown = texts_of(page.text)
    assert any("5 m at this share (the wait counts, so over since " in text for text in shown)
    assert any(", the wait included). Rollout " in text for text in shown)
    assert (waiting, await database.fetchval("SELECT challenger_weight FROM ServingPolicy")) == (10, 50)
