"""Acts on versions: retired and brought back as the command does, and asked about logged calls."""

import pytest
from contract.servers import MODEL_NAME, running
from traffic.logged import LoggedTraffic
from worlds.console import is_sound, running_console, texts_of
from worlds.logged_calls import CALLS, LoggedCalls
from worlds.rollout import two_versions

CHURN = "/models/churn"
STATUS = "SELECT status FROM ModelVersion WHERE version = '7'"


async def test_a_version_is_retired_with_a_reason_and_brought_back(database, database_url):
    await two_versions(database)
    path = f"{CHURN}/acts/retire?version=7"
    async with running_console(database_url) as console, console.visit("read", "operate") as visit:
        listed = await visit.get(f"{CHURN}/versions")
        form, asked = await visit.form(path), await visit.get(path)
        refused = await visit.post(f"{CHURN}/acts/retire", form)
        status = [await database.fetchval(STATUS)]
        done = await visit.post(f"{CHURN}/acts/retire", {**form, "reason": "superseded"})
        status.append(await database.fetchval(STATUS))
        shown = await visit.get(done.headers["location"])
        back = await visit.form(f"{CHURN}/acts/bring-back?version=7")
        await visit.post(f"{CHURN}/acts/bring-back", {**back, "reason": "it is good after all"})
        status.append(await database.fetchval(STATUS))
        with_role = await visit.get(f"{CHURN}/acts/retire?version=6")
        unknown = await visit.get(f"{CHURN}/acts/retire?version=99")

    assert is_sound(asked.text)
    assert f'href="{CHURN}/acts/retire?version=7"' in listed.text
    assert f'href="{CHURN}/acts/retire?version=6"' not in listed.text  # the champion
    assert refused.status_code == 422
    assert status == ["staging", "retired", "staging"]
    assert "Done: churn 7 is retired, and was staging." in texts_of(shown.text)
    assert (with_role.status_code, unknown.status_code) == (409, 404)
    rows = await database.fetch(
        "SELECT actor = $1, via, reason FROM RegistryAudit WHERE subject = 'version' AND action = 'update' ORDER BY id",
        await database.fetchval("SELECT id FROM ApiKey"),
    )
    assert [tuple(row) for row in rows] == [
        (True, "console", "superseded"),
        (True, "console", "it is good after all"),
    ]


@pytest.mark.parametrize("fields", [{"calls": "0"}, {"calls": "many"}, {"since": "never"}])
async def test_a_replay_that_is_not_understood_asks_no_server(database, database_url, fields):
    await two_versions(database)
    async with running_console(database_url) as console, console.visit("operate") as visit:
        form = await visit.form(f"{CHURN}/acts/replay?version=7")
        answer = await visit.post(f"{CHURN}/acts/replay", {**form, "since": "1d", "calls": "20", "from": "", **fields})

    assert answer.status_code == 409
    assert next(iter(fields)) in answer.text


async def test_logged_calls_are_replayed_and_nothing_is_written(database, database_url):
    traffic = LoggedTraffic(database_url)
    world = LoggedCalls(database, traffic)
    async with running() as (server,):
        before = await world.add_version("6")
        await world.add_version("7", server.endpoint)
        await world.log(before, CALLS)
        path = f"/models/{MODEL_NAME}/acts/replay"
        async with running_console(database_url) as console, console.visit("read", "operate") as visit:
            asked, form = await visit.get(f"{path}?version=7"), await visit.form(f"{path}?version=7")
            written = await world.written()
            done = await visit.post(path, {**form, "since": "1d", "calls": "30", "from": "6"})
            after, shown = await world.written(), await visit.get(done.headers["location"])
    await traffic.close()

    assert is_sound(asked.text)
    assert is_sound(shown.text)
    assert (server.completed, after) == (30, written)
    texts = " ".join(texts_of(shown.text))
    assert "Replayed: " in texts
    assert "Nothing was written" in texts
    assert "then 30, now 30, 0 failed" in texts
