"""``understudy log query``: one table, wherever its rows are, that can only be read."""

import asyncio
import csv
import io

import pytest
from command import CommandLine
from worlds.archive import Month, few_days, fill, month_ago, versions_of

ROWS = 300
MONTHS = [month_ago(3), month_ago(2), month_ago(0)]
QUESTIONS = [
    "SELECT count(*), count(DISTINCT id), sum(id), sum(latency_us), count(score) FROM predictionlog",
    "SELECT model, version, day, count(*) FROM predictionlog GROUP BY ALL ORDER BY ALL",
    "SELECT * FROM predictionlog ORDER BY id",
    "SELECT prediction->>'$.score' AS score, error_code IS NULL FROM predictionlog ORDER BY id DESC LIMIT 7",
    "FROM predictionlog SELECT max(predicted_at), min(predicted_at), any_value(defaulted)",
]
REFUSED = [
    "CREATE TABLE mine AS SELECT * FROM predictionlog",
    "COPY predictionlog TO 'mine.parquet'",
    "SELECT 1; SELECT 2",
    "SET memory_limit = '1TB'",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT nothing FROM predictionlog",
    "ATTACH 'mine.db'",
    "",
]


@pytest.fixture
async def versions(database) -> list[int]:
    ids = await versions_of(database)
    await fill(database, MONTHS, ROWS, ids, few_days)
    return ids


def archive(understudy: CommandLine, *arguments: str):
    return understudy("db", "archive", "--to", "archive=here", "--older-than", "1d", *arguments)


def day(month: Month) -> str:
    return f"{month.start:%Y-%m-%d}"


async def test_every_question_has_the_same_answer_before_and_after(understudy, versions):
    def ask() -> list[object]:
        answers = [understudy("log", "query", question, "--json", "--limit", "100000") for question in QUESTIONS]
        assert [done.code for done in answers] == [0] * len(QUESTIONS), answers
        return [{**done.document["query"], "live_rows": 0, "archived_rows": 0} for done in answers]

    before = await asyncio.to_thread(ask)
    moved = await asyncio.to_thread(archive, understudy)
    after = await asyncio.to_thread(ask)

    assert moved.code == 0, moved
    assert ", 600 rows moved to file://" in moved.said
    assert after == before
    assert before[0]["rows"][0][:2] == [900, 900]  # type: ignore[index]


async def test_it_says_where_the_rows_came_from_and_reads_only_what_was_asked_for(understudy, versions):
    await asyncio.to_thread(archive, understudy)
    count = "SELECT count(*) AS n FROM predictionlog"

    async def ask(*options: str) -> tuple[int, int, int]:
        found = (await understudy.beside("log", "query", count, "--json", *options)).document["query"]
        return found["live_rows"], found["archived_rows"], found["rows"][0][0]

    assert await ask() == (300, 600, 900)
    assert await ask("--since", day(MONTHS[1])) == (300, 300, 600)
    assert await ask("--since", day(MONTHS[0]), "--until", day(MONTHS[1])) == (0, 300, 300)
    assert await ask("--model", "churn") == (150, 300, 450)
    assert await ask("--model", "churn", "--model", "visits/ä=%", "--until", day(MONTHS[2])) == (0, 600, 600)
    assert await ask("--model", "nobody") == (0, 0, 0)
    said = await understudy.beside("log", "query", count)
    assert "300 live rows and 600 archived ones could be seen" in said.err


async def test_csv_has_every_row_and_a_table_says_when_it_has_not(understudy, versions):
    listed = "SELECT id, model, score FROM predictionlog ORDER BY id"

    whole = await understudy.beside("log", "query", listed, "--csv")
    some = await understudy.beside("log", "query", listed, "--limit", "5")

    rows = list(csv.reader(io.StringIO(whole.out)))
    assert rows[0] == ["id", "model", "score"]
    assert len(rows) == 901
    assert "visits/ä=%" in {row[1] for row in rows}
    assert "and more: --limit shows more than 5, --csv all" in some.said
    assert len(some.out.splitlines()) == 8


async def test_what_writes_sets_or_reads_something_else_is_refused(understudy, versions, tmp_path):
    refused = {statement: await understudy.beside("log", "query", statement) for statement in REFUSED}

    assert {statement: (done.code, done.out) for statement, done in refused.items()} == dict.fromkeys(REFUSED, (2, ""))
    assert [one for one, done in refused.items() if "For example: understudy log query" not in done.said] == []
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_is_gone_is_named_and_no_answer_is_given(understudy, versions, tmp_path):
    await asyncio.to_thread(archive, understudy)
    gone = next((tmp_path / "archive=here").rglob("*.parquet"))
    gone.unlink()

    refused = await understudy.beside("log", "query", "SELECT 1 FROM predictionlog")

    assert refused.code == 1
    assert refused.err.startswith("✖ E208")
    assert gone.name in refused.said


async def test_a_dry_run_tells_the_months_and_changes_nothing(understudy, database, versions, tmp_path):
    planned = await asyncio.to_thread(archive, understudy, "--dry-run", "--json")
    shown = await asyncio.to_thread(archive, understudy, "--dry-run")

    found = planned.document["archive"]
    assert [(month["partition_name"], month["first_step"]) for month in found["months"] if month["rows"] == ROWS] == [
        (month.partition, "export") for month in MONTHS[:2]
    ]
    assert found["dry_run"] is True
    assert "nothing was changed" in shown.said
    assert await database.fetchval("SELECT count(*) FROM LogArchive") == 0
    assert list(tmp_path.iterdir()) == []


async def test_nothing_old_is_no_problem_and_no_place_is_one(understudy, database):
    nothing = await understudy.beside("db", "archive", "--to", "archive")
    nowhere = await understudy.beside("db", "archive")
    secret = await understudy.beside("db", "archive", "--to", "s3://key:topsecret@bucket")

    assert (nothing.code, nowhere.code, secret.code) == (0, 69, 69)
    assert "no month is old enough" in nothing.out
    assert "UNDERSTUDY_ARCHIVE_URL" in nowhere.said
    assert "topsecret" not in secret.said


LONG_NAMES = ["é" * 200, "é" * 201, "漢" * 255, "/" * 255, "__HIVE_DEFAULT_PARTITION__", "it's 'quoted' " * 18]


async def test_rows_of_models_whose_names_are_too_long_for_a_folder_stop_nothing_and_keep_their_names(
    understudy, database, tmp_path
):
    models = ["churn", *LONG_NAMES]
    await fill(database, [month_ago(3), month_ago(0)], 70, await versions_of(database, models), few_days)
    question = "SELECT model, count(*) AS n, sum(id) FROM predictionlog GROUP BY ALL ORDER BY ALL"

    before = await understudy.beside("log", "query", question, "--json")
    moved = await asyncio.to_thread(archive, understudy)
    after = await understudy.beside("log", "query", question, "--json")
    one = await understudy.beside("log", "query", "SELECT count(*) FROM predictionlog", "--json", "--model", "é" * 200)

    assert (before.code, moved.code, after.code) == (0, 0, 0), (before, moved, after)
    assert {row[0]: row[1] for row in before.document["query"]["rows"]} == dict.fromkeys(models, 20)
    assert after.document["query"]["rows"] == before.document["query"]["rows"]
    assert after.document["query"]["archived_rows"] == 70
    assert one.document["query"]["rows"] == [[20]]
    folders = {path.name for path in (tmp_path / "archive=here" / "predictionlog").iterdir()}
    assert len(folders) == len(models)
    assert max(len(folder.encode()) for folder in folders) == 255
