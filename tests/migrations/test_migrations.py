import asyncio
from pathlib import Path

import asyncpg
import orjson
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from command import CommandLine
from sqlalchemy import Connection
from worlds.rollout import insert_rollout, two_versions

from understudy.adapters import migrations
from understudy.adapters.postgres.connections.engine import make_engine
from understudy.adapters.postgres.tables import METADATA, is_compared
from understudy.errors import MigrationNeeded, RegistryUnavailable

SEED = (Path(__file__).parent / "seed.sql").read_text()

OBJECTS = """
    SELECT 'relation', relname FROM pg_class WHERE relnamespace = 'public'::regnamespace
    UNION ALL SELECT 'function', proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    UNION ALL SELECT 'trigger', tgname FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL SELECT 'constraint', conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    ORDER BY 1, 2
"""

COLUMNS = """
    SELECT table_name, column_name, udt_name, character_maximum_length, is_nullable
    FROM information_schema.columns WHERE table_schema = $1
"""


async def objects_of(url: str) -> list[tuple[str, str]]:
    connection = await asyncpg.connect(url, timeout=10)
    try:
        return [tuple(row) for row in await connection.fetch(OBJECTS)]
    finally:
        connection.terminate()


@pytest.mark.old_schema
async def test_a_policy_with_further_arms_works_after_the_way_down_and_up_again(database, database_url):
    ids = [
        await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ('churn', $1, 's3://models', 'onnx', '{}') RETURNING id",
            label,
        )
        for label in ("6", "7", "9")
    ]
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight, arms)"
        " VALUES ('churn', $1, $2, 5, $3)",
        *ids[:2],
        orjson.dumps([{"version_id": ids[2], "first": 90, "last": 99}]).decode(),
    )
    statuses = "SELECT string_agg(status, ' ' ORDER BY id) FROM ModelVersion"
    raise_weight = "UPDATE ServingPolicy SET challenger_weight = challenger_weight + 1 RETURNING challenger_weight"

    await migrations.downgrade(database_url, "0003", lose_data=True)
    without = await database.fetchval(statuses), await database.fetchval(raise_weight)
    await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '9'")
    await migrations.upgrade(database_url)

    assert without == ("champion challenger staging", 6)
    assert await database.fetchval(raise_weight) == 7
    assert await database.fetchval("SELECT arms FROM ServingPolicy") == "[]"


@pytest.mark.old_schema
async def test_rows_that_were_there_outlive_the_way_down_and_up_of_the_bounds_and_are_guarded_again(
    database, database_url
):
    versions = await two_versions(database)
    for days in (-1, 3):
        await insert_rollout(database, "churn", versions["6"], versions["7"], finished_days_ago=days)
    await database.execute(
        """INSERT INTO AlertOutbox (dedup_key, action, severity, payload) VALUES ('k', 'trigger', 'info', '{}');
           INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)
           VALUES ('o', 'churn', 'u', 'bought', 1, now());
           INSERT INTO SpoolOffset VALUES ('s', 1, 9, now() - INTERVAL '9 years')"""
    )
    tables = ("Rollout", "AlertOutbox", "OutcomeEvent", "SpoolOffset", "PolicyAudit", "PolicyChange")
    contents = [f"SELECT t::text FROM {table} t ORDER BY 1" for table in tables]
    first, objects = [await database.fetch(rows) for rows in contents], await objects_of(database_url)
    refused_once_down = ("DELETE FROM SpoolOffset", "DELETE FROM PolicyAudit", "DELETE FROM PolicyChange")

    await migrations.downgrade(database_url, "0006", lose_data=True)
    for statement in refused_once_down:
        with pytest.raises(asyncpg.CheckViolationError):
            await database.execute(statement)
    await database.execute("UPDATE Rollout SET state = state - 'reason'")
    await migrations.upgrade(database_url)

    assert await objects_of(database_url) == objects
    assert [await database.fetch(rows) for rows in contents][1:] == first[1:]
    with pytest.raises(asyncpg.CheckViolationError, match="nobody could read its state"):
        await database.execute("UPDATE Rollout SET state = '{}'")
    assert await database.execute("DELETE FROM SpoolOffset") == "DELETE 1"


async def test_an_upgrade_of_an_upgraded_database_changes_nothing(database_url):
    before = await objects_of(database_url)

    revision = await migrations.upgrade(database_url)

    assert revision == migrations.head()
    assert await objects_of(database_url) == before


async def test_two_upgrades_at_once_both_succeed(empty_database_url):
    revisions = await asyncio.gather(*(migrations.upgrade(empty_database_url) for _ in range(2)))

    assert revisions == [migrations.head()] * 2


async def test_the_tables_in_python_are_the_tables_in_the_database(database_url):
    def differences(connection: Connection) -> list[object]:
        options = {"include_name": is_compared, "compare_type": True, "compare_server_default": True}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), METADATA))

    engine = make_engine(database_url, timeout_seconds=20, application_name="test")
    async with engine.connect() as connection:
        found = await connection.run_sync(differences)
    await engine.dispose()

    assert [difference for difference in found if "alembic_version" not in str(difference)] == []


async def test_every_column_of_the_seed_is_there_with_its_type_and_nullability(database):
    await database.execute(f"CREATE SCHEMA seed; SET search_path = seed; {SEED}; RESET search_path")

    seed = {tuple(row) for row in await database.fetch(COLUMNS, "seed")}
    ours = {tuple(row) for row in await database.fetch(COLUMNS, "public")}

    assert len({table for table, *_ in seed}) == 4
    assert seed - ours == set()


async def test_columns_that_the_seed_does_not_know_need_no_value(database):
    await database.execute(f"CREATE SCHEMA seed; SET search_path = seed; {SEED}; RESET search_path")

    demanding = await database.fetch(
        """SELECT o.table_name, o.column_name FROM information_schema.columns o
           WHERE o.table_schema = 'public' AND o.is_nullable = 'NO' AND o.column_default IS NULL
             AND o.table_name IN (SELECT table_name FROM information_schema.tables WHERE table_schema = 'seed')
             AND NOT EXISTS (SELECT FROM information_schema.columns s WHERE s.table_schema = 'seed'
                             AND s.table_name = o.table_name AND s.column_name = o.column_name)"""
    )

    assert demanding == []


async def test_the_statements_of_the_seed_run_as_written(database):
    schema = '{"features": [{"name": "age", "dtype": "float32"}]}'
    register = (
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, metrics) "
        f"VALUES ('churn', $1, 's3://bucket/path/model.pt', 'pytorch', '{schema}', '{{\"auc\": 0.8}}') RETURNING id"
    )
    blue, green, canary = [await database.fetchval(register, version) for version in ("1", "2", "3")]

    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", blue)
    await database.execute("UPDATE ServingPolicy SET champion_version = $1 WHERE model_name = 'churn'", green)
    await database.execute("UPDATE ServingPolicy SET challenger_version = $1 WHERE model_name = 'churn'", canary)
    for weight in (5, 50, 100, 0):
        await database.execute(f"UPDATE ServingPolicy SET challenger_weight = {weight} WHERE model_name = 'churn'")
    await database.execute("UPDATE ServingPolicy SET champion_version = $1 WHERE model_name = 'churn'", blue)
    await database.execute("UPDATE ServingPolicy SET shadow_version = $1 WHERE model_name = 'churn'", green)
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms) "
        "VALUES ($1, 'cust-42', $2, '{\"score\": 0.31}', 9)",
        blue,
        "ab" * 32,
    )
    await database.execute(
        "INSERT INTO PredictionMetric (model_version_id, metric_name, value) VALUES ($1, 'mean', 0.318)", blue
    )

    policy = await database.fetchrow("SELECT * FROM ServingPolicy")
    assert (policy["champion_version"], policy["challenger_version"], policy["challenger_weight"]) == (blue, canary, 0)
    assert (policy["shadow_version"], policy["previous_champion"]) == (green, green)
    assert await database.fetchval("SELECT status FROM PredictionLog WHERE entity_id = 'cust-42'") == "ok"


async def test_the_check_names_the_command_that_brings_an_old_database_up(empty_database_url):
    with pytest.raises(MigrationNeeded) as refused:
        await migrations.check(empty_database_url)

    assert "at nothing" in refused.value.detail
    assert "understudy db upgrade" in refused.value.next_step


async def test_a_database_of_a_newer_understudy_is_left_alone(database, database_url):
    await database.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(MigrationNeeded, match="9999"):
        await migrations.upgrade(database_url)

    assert await migrations.current_revision(database_url) == "9999"


async def test_a_server_that_is_not_there_is_a_registry_that_cannot_be_reached():
    with pytest.raises(RegistryUnavailable):
        await migrations.upgrade("postgresql://nobody@127.0.0.1:1/nothing")


async def test_an_upgrade_says_what_operators_notice_of_it_and_a_new_schema_is_no_upgrade(empty_database_url):
    await migrations.upgrade(empty_database_url, "0014")
    understudy = CommandLine(empty_database_url)

    tried = await understudy.beside("db", "upgrade", "--dry-run")
    made = await understudy.beside("db", "upgrade", "--json")
    again = await understudy.beside("db", "upgrade")

    assert "! policies that are there have guard = 'alert'" in tried.said
    assert "guard = 'alert'" in " ".join(made.json["notes"])
    assert "!" not in again.out
    assert migrations.notes(None) == ()
