"""The commands that an installation runs beside its processes: partitions made ahead, example models, their traffic."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from command import CommandLine
from e2e.stack import Stack

PARTITIONS = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'predictionlog'::regclass"


@pytest.fixture
def stack(tmp_path, database_url):
    stack = Stack(tmp_path, database_url)
    yield stack
    stack.stop()


async def drop_next_month(database: asyncpg.Connection) -> None:
    month = (datetime.now(UTC).replace(day=1) + timedelta(days=40)).strftime("%Y_%m")
    await database.execute(f"DROP TABLE predictionlog_{month}")


async def test_partitions_that_are_missing_are_made_once(understudy: CommandLine, database):
    before = await database.fetchval(PARTITIONS)
    await drop_next_month(database)

    would = await understudy.beside("db", "partitions", "--dry-run", "--json")
    assert (would.document["missing"], would.document["made"]) == (1, 0)
    assert await database.fetchval(PARTITIONS) == before - 1

    assert "1 partitions made" in (await understudy.beside("db", "partitions")).said
    assert await database.fetchval(PARTITIONS) == before
    assert "there already" in (await understudy.beside("db", "partitions")).said


async def test_the_monitors_own_login_may_make_partitions_and_a_readers_may_not(
    understudy: CommandLine, database, database_url
):
    await drop_next_month(database)
    place = database_url.rpartition("@")[2]
    await database.execute("CREATE ROLE watch_parts LOGIN PASSWORD 'secret' IN ROLE understudy_monitor")
    await database.execute("CREATE ROLE read_parts LOGIN PASSWORD 'secret' IN ROLE understudy_reader")
    try:
        refused = await understudy.beside("db", "partitions", DATABASE_URL=f"postgresql://read_parts:secret@{place}")
        made = await understudy.beside("db", "partitions", DATABASE_URL=f"postgresql://watch_parts:secret@{place}")
    finally:
        await database.execute("DROP ROLE watch_parts, read_parts")

    assert refused.code == 7
    assert refused.err.startswith("✖ E514")
    assert "permission denied" in refused.err
    assert made.code == 0, made.err


def test_a_database_may_be_named_by_a_file(database_url, tmp_path, monkeypatch):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    (tmp_path / "url").write_text(f"{database_url}\n")

    done = CommandLine(None)("db", "check", "--json", DATABASE_URL_FILE=str(tmp_path / "url"))

    assert done.code == 0, done.err
    assert "demo" not in done.err


def test_example_models_are_registered_called_with_their_key_and_moved(
    understudy: CommandLine, stack: Stack, model_port, tmp_path
):
    key = tmp_path / "keys" / "traffic"
    there = f"127.0.0.1:{model_port('visits:1')}"

    done = understudy("examples", "register", "--endpoint", there, "--key-file", str(key))

    assert done.code == 0, done.err
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().strip() not in done.out + done.err
    url = f"http://127.0.0.1:{stack.start_proxy(auth=True)}"
    traffic = ("examples", "traffic", "--url", url, "--rate", "40")
    called = understudy(*traffic, "--seconds", "2", "--key-file", str(key))
    assert called.code == 0, called.err
    assert ", 0 failed, " in called.out
    assert " champion" in called.out

    without = understudy(*traffic, "--seconds", "1")
    assert without.code == 69
    assert "status 401" in without.out

    moved = understudy("examples", "register", "--endpoint", "127.0.0.1:9", "--key-file", str(key))
    assert moved.code == 0, moved.err
    shown = understudy("version", "show", "visits", "1", "--json")
    assert shown.document["version"]["endpoints"] == ["127.0.0.1:9"]


def test_a_place_that_is_no_proxy_is_refused(understudy: CommandLine):
    done = understudy("examples", "traffic", "--url", "proxy:8080")

    assert done.code == 2
    assert "--url is not http://host:port" in done.err
