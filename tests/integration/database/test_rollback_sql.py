"""``understudy_rollback``: it undoes the newest move of traffic, and reaches no further back."""

import asyncio
from typing import Any

import asyncpg
import orjson
import pytest

from understudy.adapters import migrations
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.ports.registry.registry import Actor

NOTHING = "nothing: no challenger has weight, and there is no change of champion to take back"
BACK = "previous champion back"
WAITS_FOR_A_LOCK = "SELECT bool_or(wait_event_type = 'Lock') FROM pg_stat_activity WHERE datname = current_database()"


@pytest.fixture
async def versions(database: asyncpg.Connection) -> dict[str, int]:
    """Versions 1, 2 and 3 of churn; 1 is the champion."""
    found = await database.fetch(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " SELECT 'churn', number, 's3://models', 'onnx', '{}' FROM unnest(ARRAY['1', '2', '3']) AS number"
        " RETURNING version, id"
    )
    ids = {row["version"]: row["id"] for row in found}
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", ids["1"])
    return ids


async def set_policy(database: asyncpg.Connection, assignments: str, *values: Any) -> None:
    await database.execute(f"UPDATE ServingPolicy SET {assignments} WHERE model_name = 'churn'", *values)


async def roll_back(database: asyncpg.Connection, why: str | None = None) -> dict[str, Any]:
    return dict(orjson.loads(await database.fetchval("SELECT understudy_rollback('churn', $1)", why)))


async def test_a_champion_set_by_hand_is_taken_back_once_and_the_audit_says_so(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])

    first = await roll_back(database, "it burns")
    second = await roll_back(database, "it burns")

    assert (first["did"], first["champion"], first["generation"]) == (BACK, "1", 3)
    assert sorted(first["without_calls"]) == [versions["2"], versions["3"]]
    assert (second["did"], second["champion"], second["generation"]) == (NOTHING, "1", 3)
    row = await database.fetchrow("SELECT * FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert row["reason"] == "rollback to the champion before: it burns"
    assert [orjson.loads(row[when])["champion_version"] for when in ("before", "after")] == [
        versions["2"],
        versions["1"],
    ]


async def test_a_rollback_without_a_reason_is_called_one_in_the_audit(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])

    await roll_back(database)

    assert (
        await database.fetchval("SELECT reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
        == "rollback to the champion before"
    )


async def test_a_champion_before_that_is_retired_meanwhile_leaves_the_share_to_be_taken_back(
    database, database_url, versions
):
    await set_policy(
        database, "champion_version = $1, challenger_version = $2, challenger_weight = 10", versions["2"], versions["3"]
    )
    store = PostgresRolloutStore(database_url, timeout_seconds=10)
    retiring = await asyncpg.connect(database_url, timeout=10, command_timeout=10)
    async with asyncio.timeout(30), retiring.transaction():
        await retiring.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '1'")
        rollback = asyncio.create_task(store.roll_back("churn", Actor("dana", "test", "it burns")))
        while not await database.fetchval(WAITS_FOR_A_LOCK):  # noqa: ASYNC110 - Postgres has no event for it
            await asyncio.sleep(0.01)
    done = await rollback
    await retiring.close()

    assert (done.did, done.champion) == ("weight 0", "2")


@pytest.mark.parametrize(
    ("champions", "did", "champion"),
    [
        ("", NOTHING, "1"),
        ("2", BACK, "1"),
        ("23", BACK, "2"),
        ("21", NOTHING, "1"),
        ("212", BACK, "1"),
        ("2121", NOTHING, "1"),
        ("2132", BACK, "3"),
        ("231", BACK, "3"),
        ("2312", BACK, "1"),
        ("2323", BACK, "2"),
        ("232", NOTHING, "2"),
    ],
)
async def test_a_champion_that_went_to_and_fro_comes_back_where_the_newest_move_was_no_way_back(
    database, versions, champions, did, champion
):
    for label in champions:
        await set_policy(database, "champion_version = $1", versions[label])

    first = await roll_back(database)
    second = await roll_back(database)

    assert (first["did"], first["champion"]) == (did, champion)
    assert (second["did"], second["champion"]) == (NOTHING, champion)


async def test_the_end_of_a_later_trial_is_the_newest_move_and_the_champion_stays(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])
    await set_policy(database, "challenger_version = $1, challenger_weight = 10", versions["3"])

    first = await roll_back(database)
    second = await roll_back(database)

    assert (first["did"], second["did"], second["champion"]) == ("weight 0", NOTHING, "2")


async def test_what_moves_no_traffic_does_not_stand_in_the_way(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])
    await set_policy(database, "shadow_version = $1, shadow_percent = 7", versions["1"])
    await set_policy(database, "salt = 'spring', challenger_version = $1", versions["3"])

    done = await roll_back(database)

    assert (done["did"], done["champion"], done["challenger"]) == (BACK, "1", "3")
    assert await database.fetchval("SELECT shadow_version FROM ServingPolicy") is None


async def test_the_old_champion_comes_back_also_where_it_was_kept_as_challenger(database, versions):
    await set_policy(database, "champion_version = $1, challenger_version = $2", versions["2"], versions["1"])

    done = await roll_back(database)

    assert (done["did"], done["champion"], done["challenger"]) == (BACK, "1", None)


async def test_a_retired_version_does_not_come_back_and_is_named(database, versions):
    await set_policy(database, "champion_version = $1, guard = 'off'", versions["2"])
    await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '1'")

    done = await roll_back(database)

    assert (done["did"], done["champion"]) == ("nothing: version 1, the champion before, is retired", "2")


async def test_a_policy_that_was_made_anew_has_no_champion_before(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])
    await database.execute("DELETE FROM ServingPolicy")
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", versions["3"]
    )

    assert (await roll_back(database))["did"] == NOTHING


async def test_another_models_moves_are_not_undone(database, versions):
    other = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('fraud', '1', 's3://models', 'onnx', '{}') RETURNING id"
    )
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('fraud', $1)", other)
    await set_policy(database, "champion_version = $1", versions["2"])

    assert orjson.loads(await database.fetchval("SELECT understudy_rollback('fraud')"))["did"] == NOTHING


async def test_a_champion_that_came_with_a_share_for_the_old_one_gives_way_with_it(database, versions):
    await set_policy(
        database,
        "champion_version = $1, challenger_version = $2, challenger_weight = 10",
        versions["2"],
        versions["1"],
    )

    first = await roll_back(database, "it burns")
    second = await roll_back(database)

    assert (first["did"], first["champion"], first["challenger"]) == ("weight 0, previous champion back", "1", None)
    assert (second["did"], second["champion"]) == (NOTHING, "1")
    assert (
        await database.fetchval("SELECT reason FROM PolicyAudit ORDER BY id DESC LIMIT 1")
        == "rollback to the champion before: it burns"
    )


async def test_a_champion_set_beside_a_share_gives_way_and_so_does_the_share(database, versions):
    await set_policy(database, "challenger_version = $1, challenger_weight = 10", versions["3"])
    await set_policy(database, "champion_version = $1", versions["2"])

    done = await roll_back(database)

    assert (done["did"], done["champion"], done["challenger"]) == ("weight 0, previous champion back", "1", "3")


async def test_a_retired_champion_before_leaves_the_share_to_be_taken_back(database, versions):
    await set_policy(
        database, "champion_version = $1, challenger_version = $2, challenger_weight = 10", versions["2"], versions["3"]
    )
    await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '1'")

    done = await roll_back(database)

    assert (done["did"], done["champion"]) == ("weight 0", "2")


@pytest.mark.parametrize(
    ("champions", "did", "champion"), [("21", NOTHING, "1"), ("212", NOTHING, "2"), ("2", BACK, "1")]
)
async def test_what_the_audit_has_forgotten_is_not_guessed(database, versions, champions, did, champion):
    for label in champions:
        await set_policy(database, "champion_version = $1", versions[label])
    async with database.transaction():
        await database.execute("SET LOCAL session_replication_role = replica")  # the audit guards its rows' age
        await database.execute("DELETE FROM PolicyAudit WHERE id < (SELECT max(id) FROM PolicyAudit)")

    done = await roll_back(database)

    assert (done["did"], done["champion"]) == (did, champion)


async def test_rollbacks_of_one_transaction_do_not_sign_each_others_changes(database, versions):
    await set_policy(database, "champion_version = $1", versions["2"])

    async with database.transaction():
        await database.execute("SELECT set_config('understudy.reason', 'a storm', TRUE)")
        await roll_back(database)
        await set_policy(database, "challenger_version = $1, challenger_weight = 5", versions["3"])

    reasons = await database.fetch("SELECT reason FROM PolicyAudit ORDER BY id DESC LIMIT 2")
    assert [row["reason"] for row in reasons] == ["a storm", "rollback to the champion before: a storm"]


@pytest.mark.old_schema
async def test_the_release_before_leaves_a_champion_that_was_set_by_hand(database, database_url, versions):
    await set_policy(database, "champion_version = $1", versions["2"])

    await migrations.downgrade(database_url, "0010", lose_data=True)
    at_0010 = await roll_back(database)
    await migrations.upgrade(database_url)
    now = await roll_back(database)

    assert (at_0010["did"].partition(":")[0], at_0010["champion"]) == ("nothing", "2")
    assert (now["did"], now["champion"]) == (BACK, "1")
