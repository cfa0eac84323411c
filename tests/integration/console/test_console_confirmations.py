"""What the console asks before an act, over HTTP with a real Postgres: what cannot be done, and what was mistyped."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.rollout import TWINS, PastRollout

from understudy.core.rollout.state import Phase

CHURN = "/models/churn"
RESTORE, AGAIN = "understudy version restore churn 6 --reason '…'", "understudy rollback churn --reason '…'"
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
