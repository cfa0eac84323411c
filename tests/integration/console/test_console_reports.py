"""Pages of the console with reports: versions, experiments, drift and shadow, over HTTP with a real Postgres."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import datetime

import asyncpg
import pytest
from worlds.console import RunningConsole, is_sound, running_console, texts_of
from worlds.experiment import HOUR, World
from worlds.report import reported_world

from understudy.adapters.postgres.experiments.declarations import PostgresExperimentStore
from understudy.adapters.postgres.experiments.experiment_log import PostgresExperimentLog
from understudy.experiments.ab_report import report_ab
from understudy.experiments.declared_tests import MetricChoice, Wanted
from understudy.experiments.declaring import AbQuestion

CHURN = "/models/churn"
PAGES = ("/policy", "/versions", "/experiments", "/drift", "/shadow", "/audit", "/entities/cust-1")
DECLARED = {"metric": "converted", "effect": "60%", "looks": "2", "within": "1h", "version": ""}


@pytest.fixture
async def world(database: asyncpg.Connection) -> World:
    return await reported_world(database)


@pytest.fixture
async def console(world: World, database_url: str) -> AsyncIterator[RunningConsole]:
    async with running_console(database_url) as running:
        yield running


async def test_every_page_is_html_with_its_sentence_and_its_age_and_the_same_as_json(console):
    json_alone = {"accept": "application/json"}
    async with console.visit("read", "operate") as visit, console.visit() as stranger:
        rollout = (await visit.get(CHURN)).headers["location"]
        paths = ["/", "/health", rollout, *(f"{CHURN}{path}" for path in PAGES)]
        pages = [await visit.get(path) for path in paths]
        documents = [await visit.get(one.url.path, **json_alone) for one in pages]
        missing, unknown = await visit.get("/models/none/drift", **json_alone), await stranger.get(CHURN, **json_alone)
        nowhere = await visit.get("/nothing", **json_alone)

    for page, document in zip(pages, documents, strict=True):
        assert (page.status_code, document.status_code) == (200, 200), page.url
        assert is_sound(page.text)
        found = document.json()
        assert found["schema"] == "understudy/v1"
        assert abs(datetime.fromisoformat(found["read_at"]).timestamp() - time.time()) < 120
        assert found["view"]["sentence"] in texts_of(page.text), page.url
        assert "understudy " in page.text
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "E206")
    assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "E404")
    assert (unknown.status_code, unknown.headers.get("location"), unknown.json()["error"]["code"]) == (
        401,
        None,
        "E401",
    )


async def test_a_version_says_where_it_is_loaded_what_checked_it_and_its_share(console, world, database):
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target) VALUES ('triton-0', 'gpu', '10.0.0.1:8001')"
    )
    for label in ("7", "8"):
        version_id = world.versions[label]
        await database.execute(
            "INSERT INTO VersionLoading (model_version_id, group_name) VALUES ($1, 'gpu')", version_id
        )
        state = ("AVAILABLE", None, None) if label == "7" else ("ERROR", "E301", "no such file")
        await database.execute(
            "INSERT INTO LoadedVersion (server, model_version_id, state, attempt, error_code, error, epoch)"
            " VALUES ('triton-0', $1, $2, 1, $3, $4, 1)",
            version_id,
            *state,
        )
    async with console.visit("read") as visit:
        page = await visit.get(f"{CHURN}/versions")

    assert is_sound(page.text)
    shown = texts_of(page.text)
    split = "Of 3 versions 6 (champion, 50 %) and 7 (challenger, 50 %) answer calls"
    assert f"{split}; no model server is registered for 6, 7, 8; a server failed to load 8." in shown
    assert {"challenger 50 %", "champion 50 %", "shadow 100 %", "AVAILABLE", "ERROR"} <= set(shown)
    assert "E301 no such file (attempt 1)" in shown
    assert any(text.startswith("its agents: the digest") for text in shown)
    assert any(text.startswith("by no agent; understudy version check") for text in shown)


async def test_a_test_is_declared_after_its_size_was_shown_and_ends_by_a_click(console, database):
    act = f"{CHURN}/acts/declare"
    async with console.visit("read", "operate") as visit, console.visit("read") as reader:
        form = await visit.get(f"{CHURN}/experiments/new")
        wrong = [
            await visit.client.get(act, params={**DECLARED, name: value})
            for name, value in (
                ("metric", ""),
                ("effect", "much"),
                ("looks", "99"),
                ("within", "soon"),
                ("version", "6"),
            )
        ]
        asked = await visit.client.get(act, params=DECLARED)
        query = f"{act}?metric=converted&effect=60%25&looks=2&within=1h"
        fields = await visit.form(query)
        both = await asyncio.gather(*(visit.post(act, fields) for _ in range(2)))
        again = await visit.post(act, {**fields, "nonce": "another"})
        page = await visit.get(both[0].headers["location"])
        refused = await reader.post(act, {**fields, "token": (await reader.form_token())})
        number = page.url.path.rpartition("/")[2]
        stop = f"{CHURN}/acts/stop?test={number}"
        stopped = await visit.post(stop, await visit.form(stop))
        after, listed = await visit.get(stopped.headers["location"]), await visit.get(f"{CHURN}/experiments")

    for one in (form, asked, page, after, listed, *wrong):
        assert is_sound(one.text)
    assert [one.text.count('aria-invalid="true"') for one in wrong] == [1] * 5
    assert any(text.startswith("Each of two versions needs ") for text in texts_of(asked.text))
    assert [one.status_code for one in both] == [303, 303]
    assert (again.status_code, "is open already" in again.text) == (409, True)
    assert "End it" in texts_of(page.text)
    assert refused.status_code == 403
    assert any("is over, and decides nothing" in text for text in texts_of(after.text))
    assert "0 of 1 tests of churn are open." in texts_of(listed.text)
    row = await database.fetchrow("SELECT count(*) OVER () AS tests, created_by, ended_at FROM Experiment")
    assert (row["tests"], len(row["created_by"]), row["ended_at"] is not None) == (1, 12, True)


async def test_looking_at_a_test_takes_no_look_and_who_takes_it_sees_what_the_command_line_says(
    console, database, database_url
):
    query = f"{CHURN}/acts/declare?metric=converted&effect=60%25&looks=2&within=1h"
    async with console.visit("read", "operate") as visit:
        made = await visit.post(f"{CHURN}/acts/declare", await visit.form(query))
        path = made.headers["location"].partition("?")[0]
        await database.execute("UPDATE Experiment SET started_at = now() - INTERVAL '26 hours'")
        due = await visit.get(path)
        before = await database.fetchval("SELECT result FROM Experiment")
        take = f"{CHURN}/acts/take?test={path.rpartition('/')[2]}"
        taken = await visit.post(take, await visit.form(take))
        after = await visit.get(taken.headers["location"])

    log = PostgresExperimentLog(database_url, timeout_seconds=10)
    store = PostgresExperimentStore(database_url, timeout_seconds=5)
    question = AbQuestion("churn", "converted", time.time(), None, Wanted(0.6), MetricChoice(HOUR))
    report = await report_ab(log, store, question)
    assert any(text.startswith("Not decided: look 1 of 2 is due") for text in texts_of(due.text))
    assert "Take the look" in texts_of(due.text)
    assert before is None
    assert report.sentence in texts_of(after.text)
    assert "Take the look" not in texts_of(after.text)
    assert "<svg" in after.text


async def test_a_form_of_a_test_that_is_over_takes_no_look_of_the_next_one(console, database):
    query = f"{CHURN}/acts/declare?metric=converted&effect=60%25&looks=2&within=1h"
    async with console.visit("read", "operate") as visit:
        made = await visit.post(f"{CHURN}/acts/declare", await visit.form(query))
        first = made.headers["location"].partition("?")[0].rpartition("/")[2]
        stop, take = (f"{CHURN}/acts/{act}?test={first}" for act in ("stop", "take"))
        tabs = [await visit.form(stop) for _ in range(2)]
        kept = await visit.form(take)
        ended = [await visit.post(stop, fields) for fields in tabs]
        await visit.post(f"{CHURN}/acts/declare", await visit.form(query))
        await database.execute("UPDATE Experiment SET started_at = now() - INTERVAL '26 hours'")
        taken, over = await visit.post(take, kept), await visit.get(stop)
        page = await visit.get(f"{CHURN}/experiments/{first}")

    assert [one.status_code for one in (*ended, taken, over)] == [303, 409, 409, 409]
    assert "is over" in taken.text
    assert await database.fetchval("SELECT count(*) FROM Experiment WHERE result ->> 'looks' <> '[]'") == 0
    assert any(text.startswith("ended ") and text.endswith("without a decision") for text in texts_of(page.text))


async def test_a_console_that_only_shows_has_no_act_and_needs_a_reader_alone(world, database, database_url):
    name = f"only_reads_{database.get_server_pid()}"
    await database.execute(f"CREATE ROLE {name} LOGIN IN ROLE understudy_reader")
    try:
        reader = database_url.replace("//understudy@", f"//{name}@")
        given = {"console_read_only": True, "control_database_url": reader}
        async with running_console(database_url, **given) as console, console.visit("operate") as visit:
            rollout = (await visit.get(CHURN)).headers["location"]
            pages = [await visit.get(path) for path in ["/", rollout, *(f"{CHURN}{path}" for path in PAGES)]]
            acts = [await visit.get(f"{CHURN}/acts/{act}") for act in ("rollback", "set", "declare")]
            acts += [await visit.get(f"{CHURN}/experiments/new")]
            acts += [await visit.post(f"{CHURN}/acts/rollback", {"nonce": "n"}), await visit.get(f"{CHURN}/start")]
    finally:
        await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")

    assert [one.status_code for one in pages] == [200] * (len(PAGES) + 2)
    assert [one.status_code for one in acts] == [404] * 6
    assert not any(
        'method="post"' in one.text.replace('action="/logout"', "") and "/acts/" in one.text for one in pages
    )
    assert any(text.startswith("This console only shows") for text in texts_of(pages[2].text))


async def test_a_test_is_listed_and_stopped_from_the_command_line(console, understudy):
    query = f"{CHURN}/acts/declare?metric=converted&effect=60%25&looks=2&within=1h"
    async with console.visit("operate") as visit:
        made = await visit.post(f"{CHURN}/acts/declare", await visit.form(query))
        page = await visit.get(made.headers["location"])
    number = page.url.path.rpartition("/")[2]
    listed = await understudy.beside("ab", "list", "churn", "--json")
    stopped, again = [await understudy.beside("ab", "stop", "churn", number) for _ in range(2)]
    table = await understudy.beside("ab", "list")

    (one,) = listed.json["tests"]
    assert (str(one["id"]), one["metric"], one["ended_at"], one["problem"]) == (number, "converted", None, None)
    assert (stopped.code, again.code) == (0, 7)
    assert "without a decision" in " ".join(table.out.split())
