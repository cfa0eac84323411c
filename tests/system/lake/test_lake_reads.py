"""Reading the lake by real commands and routes, and what is left of a question that was given up."""

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from command import CommandLine
from integration.entrypoints.test_control import EYE, a_proxy, without_now
from system.lake.test_lake_reports import as_printed
from worlds.console import running_console
from worlds.experiment import MODEL
from worlds.lake import Lake
from worlds.lake_reports import SECONDS, LoggedWorld, readers_of
from worlds.report import reported_world

from understudy.adapters.lake.reading.plain_files import Source
from understudy.adapters.lake.reading.question import Lake as LakeQuestions
from understudy.adapters.lake.reading.question import Question
from understudy.adapters.lake.reading.snapshot import LakeReader, Wanted
from understudy.errors import LakeUnavailable
from understudy.ports.experiments.experiment_log import EntityQuery, ShadowQuery

AB = ("ab", "report", MODEL, "--metric", "converted")
SHADOW = ("shadow", "report", MODEL, "--since", "20d")
COUNT = "SELECT role, count(*) AS calls FROM predictionlog GROUP BY 1 ORDER BY 1"


@pytest.fixture
def lake(database_url, tmp_path):
    lake = Lake(database_url, tmp_path)
    yield lake
    lake.close()


@pytest.fixture
async def world(lake, database):
    return await reported_world(database, LoggedWorld(database, lake))


@pytest.fixture
async def key(database):
    await database.execute(
        "INSERT INTO ApiKey (id, sha256, scopes, created_by)"
        " VALUES ('eye', encode(sha256('secret'::bytea), 'hex'), '{read}', 'test')"
    )


async def test_commands_and_routes_answer_from_the_lake_as_from_postgres(lake, world, key, database, tmp_path):
    command, reading = CommandLine(lake.url), {"UNDERSTUDY_LOG_READS": "lake", "UNDERSTUDY_LAKE_URL": lake.place}

    async def asked(options: dict[str, Any], environment: dict[str, str]) -> list[Any]:
        async with a_proxy(tmp_path / options.get("log_reads", "postgres"), lake.url, **options) as proxy:
            routes = [
                (await proxy.get(f"/v1/models/{MODEL}/reports/{path}", headers=EYE)).json()
                for path in ("ab?metric=converted", "shadow?since=20d")
            ]
        printed = [await command.beside(*asked, "--json", **environment) for asked in (AB, SHADOW)]
        assert [done.code for done in printed] == [0, 0], printed
        return [as_printed(without_now(one)) for one in (*routes, *(done.document for done in printed))]

    expected = await asked({}, {})
    counted = await command.beside("log", "query", COUNT, "--live", "--json")
    await database.execute("TRUNCATE PredictionLog")
    found = await asked({"log_reads": "lake", "lake_url": lake.place}, reading)
    counted_in_lake = await command.beside("log", "query", COUNT, "--json", **reading)

    assert found == expected
    assert found[0] == found[2]
    assert found[1] == found[3]
    assert found[1]["calls"] > 200
    assert counted_in_lake.document["query"]["rows"] == counted.document["query"]["rows"]
    assert len(counted.document["query"]["rows"]) == 3


async def test_a_lake_that_is_away_is_said_to_be_without_its_address(lake, world, key, tmp_path):
    shutil.rmtree(lake.place)
    options = {"log_reads": "lake", "lake_url": lake.place}

    async with a_proxy(tmp_path / "proxy", lake.url, **options) as proxy:
        answered = await proxy.get(f"/v1/models/{MODEL}/reports/shadow?since=20d", headers=EYE)
    async with running_console(lake.url, **options) as console, console.visit("read") as visit:
        page = await visit.get(f"/models/{MODEL}/shadow")
    printed = await CommandLine(lake.url).beside(*SHADOW, UNDERSTUDY_LOG_READS="lake", UNDERSTUDY_LAKE_URL=lake.place)

    assert (answered.status_code, answered.json()["code"]) == (503, "E515")
    assert lake.place not in answered.text
    assert page.status_code == 503
    assert "The console cannot read the lake" in page.text
    assert "no answer of Postgres" not in page.text
    assert lake.place not in page.text
    assert printed.code == 69
    assert "E515" in printed.said


async def test_a_split_without_arms_has_no_entries_in_either_log(lake, world):
    six, seven, _ = world.versions.values()
    query = EntityQuery(MODEL, "converted", six, seven, {2: 50}, 0.0, time.time(), 60.0, is_share=False)

    assert [list(await each.log.arm_entries(query, [])) for each in readers_of(lake)] == [[], []]


async def test_an_id_in_capital_letters_is_found_in_the_lake_as_it_is_in_postgres(lake, world, database):
    (one,) = await database.fetch("SELECT prediction_id::text, predicted_at FROM PredictionLog LIMIT 1")
    at = one["predicted_at"].timestamp()

    found = [await each.receipts.of_prediction(one["prediction_id"].upper(), at) for each in readers_of(lake)]

    assert found[0]
    assert found[1] == found[0]


async def test_a_question_that_was_given_up_reads_no_further_file(lake, world, tmp_path, monkeypatch):
    monkeypatch.setattr("understudy.adapters.lake.reading.snapshot.FILES_AT_ONCE", 1)
    reader = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS)
    snapshot, turns = reader.snapshot(), list[int]()
    asked = Question(snapshot, tmp_path)
    rows, tasks = snapshot.rows, list(lake.table().load().scan().plan_files())

    def counted(wanted: Wanted, some_tasks: Any) -> Any:
        for some in rows(wanted, some_tasks):
            turns.append(some.num_rows)
            asked.interrupt()
            yield some

    monkeypatch.setattr(snapshot, "source", lambda _wanted: Source([], tasks))  # the table's library reads all
    monkeypatch.setattr(snapshot, "rows", counted)
    wanted = Wanted(("entity_id",), 0, int(time.time() * 1e6), equal=(("entity_id", "not there"),))

    with pytest.raises(LakeUnavailable, match=r"given up|Interrupt"):
        asked.gather(wanted, "SELECT entity_id FROM batch")

    asked.close()
    assert turns == [0]


async def test_files_are_read_together_within_a_bound_of_their_bytes(lake, world, monkeypatch):
    monkeypatch.setattr("understudy.adapters.lake.reading.snapshot.BYTES_AT_ONCE", 1)
    snapshot = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS).snapshot()
    files = len(list(lake.table().load().scan().plan_files()))

    turns = [rows.num_rows for rows in snapshot.rows(Wanted(("entity_id",), 0, int(time.time() * 1e6)))]

    assert len(turns) == files > 10


async def test_questions_that_hang_do_not_pile_up(lake, world, monkeypatch):
    places, hangs, goes_on = threading.BoundedSemaphore(1), threading.Event(), threading.Event()
    monkeypatch.setattr("understudy.adapters.lake.reading.question._PLACES", places)
    reader = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS)
    questions = LakeQuestions(reader, timeout_seconds=SECONDS)

    def hang(_question: Question) -> None:
        hangs.set()
        goes_on.wait(SECONDS)

    async def ask(step: Callable[[Question], None]) -> None:
        async with questions.open() as steps:
            await steps.do(step)

    given_up = asyncio.create_task(ask(hang))
    await asyncio.to_thread(hangs.wait, SECONDS)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    with pytest.raises(LakeUnavailable, match="under way"):
        await ask(lambda _question: None)
    goes_on.set()

    assert await asyncio.to_thread(places.acquire, timeout=SECONDS), "the thread that hung has ended"


async def test_a_folder_for_temporary_files_that_is_missing_is_said_to_be(lake, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "away"))
    _, readers = readers_of(lake)

    with pytest.raises(LakeUnavailable, match="no folder for what does not fit into memory"):
        await readers.log.count_calls(ShadowQuery(1, 2, [1], 0.0, time.time()))


async def test_a_question_takes_a_quarter_of_the_containers_memory_at_most(lake):
    reader = LakeReader(lake.url, lake.location, endpoint=None, timeout_seconds=SECONDS)
    told = list[str]()

    for limit in (400 << 20, None):
        async with LakeQuestions(reader, timeout_seconds=SECONDS, limit_bytes=limit).open() as steps:
            found = await steps.do(lambda question: question.run("SELECT current_setting('memory_limit')"))
        told.append(found[0][0])

    assert told == ["100.0 MiB", "953.6 MiB"]
