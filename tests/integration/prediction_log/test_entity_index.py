"""The index of the log by entity, as a command makes it and takes it away."""

import time
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from command import CommandLine
from worlds.rollout import two_versions

from understudy.adapters.postgres.prediction_log.entity_index import NAME, read_entity_index
from understudy.adapters.postgres.prediction_log.receipts import OF_ENTITY, PostgresReceiptLog
from understudy.ports.prediction_log.receipts import EntityAsked

BY_ENTITY = """
    SELECT c.relname FROM pg_index AS x JOIN pg_class AS c ON c.oid = x.indrelid JOIN pg_inherits AS i
    ON i.inhrelid = x.indexrelid WHERE i.inhparent = to_regclass($1) AND x.indisvalid ORDER BY c.relname
"""
MONTHS = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'predictionlog'::regclass"


async def names(database: asyncpg.Connection, query: str, *values: object) -> list[str]:
    return sorted(row[0] for row in await database.fetch(query, *values))


async def test_each_month_gets_it_and_one_that_is_made_later_too(understudy: CommandLine, database):
    would = await understudy.beside("db", "index-entities", "--dry-run", "--json")
    assert (would.document["indexed"], would.document["changed"]) == ([], False)

    made = await understudy.beside("db", "index-entities", "--json")
    months = await names(database, MONTHS)
    assert sorted(made.document["indexed"]) == months
    assert await names(database, BY_ENTITY, NAME) == months
    assert await database.fetchval("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", NAME)
    assert "every month has the index already" in (await understudy.beside("db", "index-entities")).said

    last = (datetime.now(UTC).replace(day=1) + timedelta(days=40)).strftime("%Y_%m")
    await database.execute(f"DROP TABLE predictionlog_{last}")
    await understudy.beside("db", "partitions")
    assert await names(database, BY_ENTITY, NAME) == months


async def test_what_was_broken_off_is_begun_anew(understudy: CommandLine, database):
    months = await names(database, MONTHS)
    await database.execute(f"CREATE INDEX {months[0]}_of_entity ON {months[0]} (entity_id)")
    await database.execute(
        "UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = to_regclass($1)", f"{months[0]}_of_entity"
    )

    assert (await understudy.beside("db", "index-entities")).code == 0
    assert await names(database, BY_ENTITY, NAME) == months


async def test_one_of_the_earlier_form_is_replaced(understudy: CommandLine, database):
    await database.execute(f"CREATE INDEX {NAME} ON predictionlog (hashtextextended(entity_id::text, 0))")

    assert (await understudy.beside("db", "index-entities")).code == 0
    assert "date_bin" in await database.fetchval("SELECT pg_get_indexdef(to_regclass($1))", NAME)
    assert await names(database, BY_ENTITY, NAME) == await names(database, MONTHS)


FILL = """
    INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at, role)
    SELECT $1, 'customer-' || place % 5000, repeat('0', 64), '{}', 9, now() - place * INTERVAL '1 second', 'champion'
    FROM generate_series(1, 20000) AS place
"""


async def test_an_entitys_calls_are_found_by_it(understudy: CommandLine, database, database_url):
    version = (await two_versions(database))["6"]
    await database.execute(FILL, version)
    await understudy.beside("db", "index-entities")
    asked = EntityAsked("churn", "customer-42", time.time() - 86_400, time.time() + 1, 50)

    found = await PostgresReceiptLog(database_url, timeout_seconds=5).of_entity(asked, 5.0)
    plan = "\n".join(row[0] for row in await database.fetch(f"EXPLAIN {OF_ENTITY}", *asked))

    assert [one.entity_id for one in found] == ["customer-42"] * 4
    assert f"{datetime.now(UTC):%Y_%m}_of_entity" in plan, plan


async def test_it_is_taken_away_again(understudy: CommandLine, database, database_url):
    indexes = "SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%hashtext((entity_id)::text)%'"
    await understudy.beside("db", "index-entities")
    assert await database.fetchval(indexes) > 1

    assert "was taken from" in (await understudy.beside("db", "index-entities", "--drop")).said
    assert await database.fetchval(indexes) == 0
    assert not (await read_entity_index(database_url, timeout_seconds=5)).is_there


@pytest.mark.parametrize("option", [(), ("--drop",)])
async def test_it_is_the_owners_to_make(understudy: CommandLine, database, database_url, option):
    place = database_url.rpartition("@")[2]
    await understudy.beside("db", "index-entities") if option else None
    await database.execute("CREATE ROLE read_index LOGIN PASSWORD 'secret' IN ROLE understudy_reader")
    try:
        refused = await understudy.beside(
            "db", "index-entities", *option, DATABASE_URL=f"postgresql://read_index:secret@{place}"
        )
    finally:
        await database.execute("DROP ROLE read_index")

    assert "E514" in refused.said
    assert "must be owner of " in refused.said
    assert (await read_entity_index(database_url, timeout_seconds=5)).is_there == bool(option)
