"""What is not known now looks like no pass on a rollout's page, whatever made it so."""

import asyncio

import asyncpg
import pytest
from worlds.console import running_console
from worlds.rollout import TWINS, PastRollout

A_MONITOR_LEADS = """
    INSERT INTO MonitorLease (name, holder, epoch, renewed_at) VALUES ('monitor', 'm-1', 1, now() + INTERVAL '1 hour')
"""
PASSES = ('<span class="badge good">', "</span> pass</span>")


async def calm(past: PastRollout, database: asyncpg.Connection) -> None:
    await past.go_on(2)
    await database.execute(A_MONITOR_LEADS)


async def without_calls(past: PastRollout, database: asyncpg.Connection) -> None:
    await database.execute(A_MONITOR_LEADS)


async def without_a_monitor(past: PastRollout, database: asyncpg.Connection) -> None:
    await past.go_on(2)


async def with_a_silent_monitor(past: PastRollout, database: asyncpg.Connection) -> None:
    await calm(past, database)
    await database.execute("UPDATE MonitorLease SET renewed_at = now() - INTERVAL '1 hour'")


async def without_its_windows(past: PastRollout, database: asyncpg.Connection) -> None:
    await calm(past, database)
    await database.execute("DELETE FROM PredictionWindow")


@pytest.mark.parametrize(
    ("planted", "is_passed"),
    [
        (calm, True),
        (without_calls, False),
        (without_a_monitor, False),
        (with_a_silent_monitor, False),
        (without_its_windows, False),
    ],
)
async def test_only_what_is_known_now_looks_like_a_pass(database, database_url, planted, is_passed):
    past = PastRollout(database, database_url, TWINS, 200)
    await past.begin()
    await planted(past, database)
    async with running_console(database_url) as console, console.visit("read") as visit:
        path, models = f"/models/churn/rollouts/{past.id}", await visit.get("/")
        async with asyncio.timeout(60):
            # Figures that come late on a machine with much to do are stale, and those that come next are not.
            page = await visit.get(path)
            while "Figures of" in page.text or (is_passed and PASSES[1] not in page.text):
                page = await visit.get(path)

    checks = page.text.partition("<h2>Checks</h2>")[2].partition("</section>")[0]
    assert [mark in checks for mark in PASSES] == [is_passed, is_passed]
    assert PASSES[0] not in models.text
    is_unwatched = planted in (without_a_monitor, with_a_silent_monitor)
    assert ("No monitor looks at it." in models.text) is is_unwatched
