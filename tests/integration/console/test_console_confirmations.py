"""What the console asks before an act, over HTTP with a real Postgres: what cannot be done, and what was mistyped."""

from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.rollout import TWINS, PastRollout, two_versions

from understudy.core.rollout.state import Phase

CHURN = "/models/churn"
RESTORE, AGAIN = "understudy version restore churn 6 --reason '…'", "understudy rollback churn --reason '…'"
FORM = ("nonce", "revision")
NOTHING = "There is nothing to roll back: version 6, the champion before, is retired."


@pytest.fixture
async def console(database_url: str) -> AsyncIterator[RunningConsole]:
    async with running_console(database_url) as running:
        yield running


@pytest.fixture
async def rollout(database: asyncpg.Connection, database_url: str) -> PastRollout:
    """At 10 %, two minutes in."""
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    await past.go_on(2)
    return past


async def state_of(past: PastRollout) -> Any:
    return (await past.store.view(past.id)).record.state


async def test_no_button_is_shown_where_the_champion_before_is_retired_but_both_commands(
    console, database, database_url
):
    past = PastRollout(database, database_url, TWINS, 3_600)
    await past.begin()
    await past.go_on(40)
    await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '6'")
    async with console.visit("operate") as visit:
        page = await visit.get(f"{CHURN}/rollouts/{past.id}")
        asked = await visit.get(f"{CHURN}/acts/rollback?rollout={past.id}")
        await database.execute("UPDATE ModelVersion SET status = 'staging' WHERE version = '6'")
        restored = await visit.get(f"{CHURN}/acts/rollback?rollout={past.id}")

    assert (await state_of(past)).phase is Phase.SUCCEEDED
    shown = texts_of(page.text)
    assert {f"{NOTHING} To put it back, in a terminal:", RESTORE, AGAIN} <= set(shown)
    assert "Roll back" not in shown
    assert "/acts/rollback" not in page.text
    assert {NOTHING, RESTORE, AGAIN, "Back"} <= set(texts_of(asked.text))
    assert '<button type="submit" class="button danger"' not in asked.text
    assert "Roll back now" in texts_of(restored.text)
    assert all(is_sound(one.text) for one in (page, asked, restored))


def told_of(page: str, field: str) -> str:
    """Return what a page says beside a field."""
    return page.partition(f'<p id="{field}-told" class="problem">')[2].partition("</p>")[0]


NAME_IS_WRONG = "The model's name was not typed as it is (E602). Nothing was changed."
KEPT = 'value="a &#34;reason&#34; of some length"'


async def test_a_mistyped_name_shows_the_same_form_again_which_then_does_it(console, rollout, database):
    path = f"{CHURN}/acts/promote?rollout={rollout.id}"
    typed = {"reason": 'a "reason" of some length', "name": "chrun"}
    async with console.visit("operate") as visit:
        again = await visit.post(path, {**await visit.form(path), **typed})
        before = await database.fetchval("SELECT challenger_weight FROM ServingPolicy")
        nonce, revision = (again.text.partition(f'name="{name}" value="')[2].partition('"')[0] for name in FORM)
        fields = {**await visit.form(path), "nonce": nonce, "revision": revision}
        done = await visit.post(path, {**fields, **typed, "name": "churn"})

    assert (again.status_code, before, done.status_code) == (422, 10, 303)
    assert unescape(told_of(again.text, "name")) == NAME_IS_WRONG
    assert KEPT in again.text
    assert 'value="chrun"' in again.text
    assert (again.text.count('aria-invalid="true"'), again.text.count("autofocus")) == (1, 1)
    assert is_sound(again.text)
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 50


async def test_a_form_of_another_step_is_not_shown_again_but_the_page_that_holds_now_is_offered(console, rollout):
    path = f"{CHURN}/acts/promote?rollout={rollout.id}"
    async with console.visit("operate") as visit:
        stale = await visit.form(path)
        pause = f"{CHURN}/acts/pause?rollout={rollout.id}"
        await visit.post(pause, {**await visit.form(pause), "reason": "lunch"})
        moved = await visit.post(path, {**stale, "reason": "go", "name": "chrun"})

    assert (moved.status_code, "E409" in moved.text) == (412, True)


async def test_a_program_that_asks_for_json_is_told_the_error_itself(console, rollout):
    path = f"{CHURN}/acts/promote?rollout={rollout.id}"
    async with console.visit("operate") as visit:
        fields = {**await visit.form(path), "reason": "go", "name": "chrun"}
        refused = await visit.post(path, fields, accept="application/json")

    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "E602")


@pytest.mark.parametrize(
    ("path", "wrong", "field"),
    [
        (f"{CHURN}/acts/set?generation=1&challenger=7&challenger_weight=30&arms=", {"name": "chrun"}, "name"),
        (f"{CHURN}/acts/set?generation=1&challenger=7&challenger_weight=30&arms=", {"reason": " "}, "reason"),
        (f"{CHURN}/acts/start?version=7&plan=5,100", {"name": "chrun"}, "name"),
        (f"{CHURN}/acts/retire?version=7", {"reason": ""}, "reason"),
    ],
)
async def test_each_form_that_asks_comes_again_with_what_was_typed(console, database, path, wrong, field):
    await two_versions(database)
    typed = {"reason": 'a "reason" of some length', "name": "churn"}
    async with console.visit("operate") as visit:
        fields = {**await visit.form(path), **typed, **wrong}
        again = await visit.post(path.partition("?")[0], fields)

    assert again.status_code == 422
    assert "(E602). Nothing was changed." in told_of(again.text, field)
    assert (KEPT in again.text) is (field == "name")
    assert 'class="act"' in again.text
    assert is_sound(again.text)
    assert await database.fetchval("SELECT generation FROM ServingPolicy") == 1


async def test_the_form_that_restores_a_policy_comes_again_too_unless_another_changed_it(console, database):
    await two_versions(database)
    await database.execute("UPDATE ServingPolicy SET guard = 'alert'")
    path = f"{CHURN}/acts/restore?from=1"
    async with console.visit("operate") as visit:
        fields = {**await visit.form(path), "reason": ""}
        again = await visit.post(path.partition("?")[0], fields)
        await database.execute("UPDATE ServingPolicy SET guard = 'off'")
        moved = await visit.post(path.partition("?")[0], fields)

    assert (again.status_code, moved.status_code) == (422, 412)
    assert told_of(again.text, "reason") == "A reason is needed (E602). Nothing was changed."
    assert "E409" in moved.text


async def test_before_its_first_share_a_rollout_is_not_rolled_back_and_the_command_that_ends_it_is_named(
    console, database, database_url
):
    past = PastRollout(database, database_url, TWINS, 600)
    await past.begin()
    async with console.visit("operate") as visit:
        asked = await visit.get(f"{CHURN}/acts/rollback?rollout={past.id}")

    shown = texts_of(asked.text)
    assert any(text.startswith("There is nothing to roll back: rollout") for text in shown)
    assert "understudy rollout abort churn --reason '…'" in shown
    assert "Roll back now" not in shown
