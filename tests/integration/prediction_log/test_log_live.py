"""``log query`` by Postgres itself, with and without the extra that reads archives, and ``log tail``."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from worlds.archive import few_days, fill, month_ago, versions_of

ROWS = 300
MONTHS = [month_ago(2), month_ago(0)]
REFUSED = [
    "CREATE TABLE mine AS SELECT * FROM predictionlog",
    "DELETE FROM predictionlog",
    "SELECT 1; SELECT 2",
    "SELECT 1) AS x, (WITH gone AS (DELETE FROM apikey RETURNING 1) SELECT * FROM gone",
    "SELECT set_config('transaction_read_only', 'off', TRUE)",
    "SELECT understudy_rollback('churn', 'by a query')",
    "SELECT nothing FROM predictionlog",
    "SELECT 1 / 0",
    "SELECT 'open",
    "",
]
WITHOUT_DUCKDB = """
import sys
sys.modules["duckdb"] = None
from understudy.entrypoints.cli.main import main
sys.argv[0] = "understudy"
main()
"""


@pytest.fixture
async def versions(database) -> list[int]:
    ids = await versions_of(database)
    await fill(database, MONTHS, ROWS, ids, few_days)
    return ids


async def test_postgres_and_duckdb_answer_the_same_question_alike(understudy, versions):
    question = "SELECT * FROM predictionlog ORDER BY id LIMIT 5"

    by_duckdb = (await understudy.beside("log", "query", question, "--json")).document["query"]
    by_postgres = (await understudy.beside("log", "query", question, "--json", "--live")).document["query"]

    assert (by_duckdb["engine"], by_postgres["engine"]) == ("duckdb", "postgres")
    assert set(by_postgres["columns"]) == set(by_duckdb["columns"])
    assert len(by_postgres["rows"]) == 5
    shared = [name for name in by_duckdb["columns"] if name not in ("prediction", "defaulted")]
    for ours, theirs in zip(by_postgres["rows"], by_duckdb["rows"], strict=True):
        mine = dict(zip(by_postgres["columns"], ours, strict=True))
        other = dict(zip(by_duckdb["columns"], theirs, strict=True))
        assert {name: mine[name] for name in shared} == {name: other[name] for name in shared}
        assert json.loads(mine["prediction"]) == json.loads(other["prediction"])


async def test_only_one_select_that_reads_can_run(understudy, database, versions):
    refused = {statement: await understudy.beside("log", "query", statement, "--live") for statement in REFUSED}

    assert {statement: (done.code, done.out) for statement, done in refused.items()} == dict.fromkeys(REFUSED, (2, ""))
    assert [one for one, done in refused.items() if "For example: understudy log query" not in done.said] == []
    assert await database.fetchval("SELECT count(*) FROM predictionlog") == len(MONTHS) * ROWS


async def test_time_and_model_narrow_it_csv_has_every_row_and_a_comment_or_semicolon_at_the_end_is_taken(
    understudy, versions
):
    async def count(*options: str) -> int:
        done = await understudy.beside("log", "query", "SELECT count(*) FROM predictionlog ; ", "--json", *options)
        rows: list[list[int]] = done.document["query"]["rows"]
        return rows[0][0]

    whole = await understudy.beside("log", "query", "SELECT id FROM predictionlog ORDER BY id;", "--live", "--csv")
    some = await understudy.beside("log", "query", "SELECT id FROM predictionlog -- all", "--live", "--limit", "5")

    assert await count("--live") == 600
    assert await count("--live", "--model", "churn") == 300
    assert await count("--live", "--until", f"{MONTHS[1].start:%Y-%m-%d}") == 300
    assert len(whole.out.splitlines()) == 601
    assert "and more: --limit shows more than 5, --csv all" in some.said


async def test_without_duckdb_what_postgres_holds_is_answered_and_what_is_archived_is_said(
    understudy, database_url, versions, tmp_path
):
    moved = await understudy.beside("db", "archive", "--to", str(tmp_path / "archive"), "--older-than", "1d")

    def ask(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", WITHOUT_DUCKDB, "log", "query", "SELECT count(*) AS n FROM predictionlog", *options],
            capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "DATABASE_URL": database_url, "COLUMNS": "80", "NO_COLOR": "1"},
        )  # fmt: skip

    whole = await asyncio.to_thread(ask, "--json")
    shown = await asyncio.to_thread(ask)

    assert moved.code == 0, moved
    assert whole.returncode == 0, whole
    found = json.loads(whole.stdout)["query"]
    assert (found["engine"], found["rows"], found["unseen_rows"]) == ("postgres", [[300]], 300)
    said = " ".join(shown.stderr.split())
    assert "duckdb is not installed, so Postgres itself is asked" in said
    assert "up to 300 rows of that time are in the archive, and were not seen" in said
    assert "pip install 'understudy-serving[archive]'" in said


async def test_the_newest_calls_have_a_line_each(understudy, database):
    versions = await versions_of(database)
    await database.execute(
        "INSERT INTO predictionlog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,"
        " status, error_code, role, latency_us) SELECT $1, 'late-' || n, 'x', '{}', 1, now() - n * INTERVAL '1 second',"
        " 'timeout', 'E504', 'champion', 519742 FROM generate_series(1, 3) AS n",
        versions[0],
    )

    newest = await understudy.beside("log", "tail", "churn", "-n", "2")
    failed = await understudy.beside("log", "tail", "--failed", "--json-lines")
    nothing = await understudy.beside("log", "tail", "churn", "--since", "1s", "--failed")
    unknown = await understudy.beside("log", "tail", "chrun")

    lines = newest.out.splitlines()
    assert [line.split()[-1] for line in lines[-2:]] == ["late-2", "late-1"]
    assert max(map(len, lines)) <= 80
    calls = [json.loads(line)["call"] for line in failed.out.splitlines()]
    assert [call["entity_id"] for call in calls] == ["late-3", "late-2", "late-1"]
    assert {call["error_code"] for call in calls} == {"E504"}
    assert "no such call since 1s" in nothing.said
    assert (unknown.code, "churn" in unknown.said) == (4, True)
