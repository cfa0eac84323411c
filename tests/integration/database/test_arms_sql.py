"""Further arms in plain SQL: how they go together with rollouts, promotions, retirements and locks."""

import asyncio
from typing import Any, NamedTuple

import asyncpg
import orjson
import pytest
from worlds.rollout import insert_rollout


class Registered(NamedTuple):
    """Ids of three versions of churn."""

    first: int
    second: int
    third: int


def arms(version_id: int) -> str:
    return f'[{{"version_id": {version_id}, "first": 90, "last": 99}}]'


@pytest.fixture
async def versions(database: asyncpg.Connection) -> Registered:
    """Champion v1, challenger v2 with 5 %, and v3 with the buckets 90 to 99."""
    ids = Registered(
        *[
            await database.fetchval(
                "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
                " VALUES ('churn', $1, 's3://models', 'onnx', '{}') RETURNING id",
                label,
            )
            for label in ("v1", "v2", "v3")
        ]
    )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight, arms) "
        f"VALUES ('churn', {ids.first}, {ids.second}, 5, '{arms(ids.third)}')"
    )
    return ids


async def state_of(database: asyncpg.Connection) -> list[Any]:
    tables = ("ServingPolicy", "ModelVersion", "PolicyAudit", "PolicyChange")
    return [await database.fetch(f"SELECT t::text FROM {table} t ORDER BY 1") for table in tables]


async def statuses(database: asyncpg.Connection) -> dict[str, str]:
    rows = await database.fetch("SELECT version, status FROM ModelVersion")
    return {row["version"]: row["status"] for row in rows}


async def start_rollout(database: asyncpg.Connection, versions: Registered) -> None:
    async with database.transaction():
        await insert_rollout(database, "churn", versions.first, versions.second)
        await database.execute("UPDATE ServingPolicy SET rollout_id = (SELECT max(id) FROM Rollout)")


REFUSED = {
    "a weight that runs into an arm": (
        "UPDATE ServingPolicy SET challenger_weight = 95",
        "at weight 95 the challenger of churn has the buckets 0 to 94, and version v3 has 90 to 99",
    ),
    "making an arm the champion": (
        "UPDATE ServingPolicy SET champion_version = {v.third}",
        "version v3 of churn cannot be an arm and champion at once",
    ),
    "making an arm the challenger": (
        "UPDATE ServingPolicy SET challenger_version = {v.third}",
        "version v3 of churn cannot be an arm and challenger at once",
    ),
    "making an arm the shadow": (
        "UPDATE ServingPolicy SET shadow_version = {v.third}",
        "version v3 of churn cannot be an arm and shadow at once",
    ),
    "retiring an arm": (
        "UPDATE ModelVersion SET status = 'retired' WHERE id = {v.third}",
        "version v3 of churn is an arm and cannot be retired",
    ),
    "deleting an arm": (
        "DELETE FROM ModelVersion WHERE id = {v.third}",
        "version v3 of churn is an arm and cannot be deleted",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
async def test_what_an_arm_forbids_is_refused_and_the_statement_of_the_hint_works(database, versions, kind):
    statement, message = REFUSED[kind]
    before = await state_of(database)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(statement.format(v=versions))

    assert message in refused.value.message
    assert refused.value.detail == "E203"
    assert await state_of(database) == before
    assert refused.value.hint is not None
    await database.execute(refused.value.hint.partition(": ")[2])
    assert await database.fetchval("SELECT generation FROM ServingPolicy") == 2


async def test_no_rollout_begins_beside_further_arms(database, versions):
    with pytest.raises(asyncpg.CheckViolationError, match="churn has further arms, so no rollout can begin") as refused:
        await start_rollout(database, versions)

    assert refused.value.hint is not None
    await database.execute(refused.value.hint.partition(": ")[2])
    await start_rollout(database, versions)


async def test_no_arm_begins_beside_a_rollout(database, versions):
    await database.execute("UPDATE ServingPolicy SET arms = '[]'")
    await start_rollout(database, versions)
    before = await state_of(database)

    with pytest.raises(asyncpg.CheckViolationError, match="is under way, so there are no further arms") as refused:
        await database.execute(f"UPDATE ServingPolicy SET arms = '{arms(versions.third)}'")

    assert "SELECT understudy_rollback('churn')" in str(refused.value.hint)
    assert await state_of(database) == before


async def test_an_arm_has_the_status_of_a_challenger_for_as_long_as_it_is_one(database, versions):
    at_first = await statuses(database)
    await database.execute(
        f"UPDATE ServingPolicy SET challenger_version = NULL, challenger_weight = 0, arms = '{arms(versions.second)}'"
    )
    swapped = await statuses(database)
    await database.execute("UPDATE ServingPolicy SET arms = '[]'")

    assert at_first == {"v1": "champion", "v2": "challenger", "v3": "challenger"}
    assert swapped == {"v1": "champion", "v2": "challenger", "v3": "staging"}
    assert await statuses(database) == {"v1": "champion", "v2": "staging", "v3": "staging"}
    assert await database.fetchval("SELECT count(*) FROM ModelVersion WHERE deployed_at IS NOT NULL") == 3


async def test_a_change_of_arms_is_one_audit_row_and_told_to_the_proxies(database, database_url, versions):
    heard: asyncio.Queue[Any] = asyncio.Queue()
    listener = await asyncpg.connect(database_url)
    await listener.add_listener("understudy_policy", lambda *said: heard.put_nowait(orjson.loads(said[3])))

    await database.execute("SET understudy.reason = 'over'; UPDATE ServingPolicy SET arms = '[]'")

    assert await asyncio.wait_for(heard.get(), 30) == {"model": "churn"}
    row = await database.fetchrow("SELECT * FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert (row["generation"], row["reason"], orjson.loads(row["after"])["arms"]) == (2, "over", [])
    assert orjson.loads(row["before"])["arms"] == orjson.loads(arms(versions.third))
    listener.terminate()


async def test_a_rollback_in_sql_ends_all_arms(database, versions):
    did = orjson.loads(await database.fetchval("SELECT understudy_rollback('churn', 'it burns')"))

    assert did["did"] == "weight 0 and the end of all further arms"
    split = await database.fetch("SELECT role, version, percent FROM understudy_split")
    assert {tuple(row) for row in split} == {("champion", "v1", 100), ("challenger", "v2", 0)}
    again = orjson.loads(await database.fetchval("SELECT understudy_rollback('churn', 'it burns')"))
    assert again["did"].startswith("nothing")


async def test_the_views_have_every_arm(database, versions):
    ranges = [{"version_id": versions.third, "first": first, "last": last} for first, last in ((90, 99), (50, 50))]
    await database.execute("UPDATE ServingPolicy SET arms = $1", orjson.dumps(ranges).decode())

    split = await database.fetch("SELECT role, version, percent FROM understudy_split")
    status = await database.fetchrow("SELECT * FROM understudy_status")
    rows = await database.fetch("SELECT version, first, last FROM understudy_arms ORDER BY first")

    assert {tuple(row) for row in split} == {("champion", "v1", 84), ("challenger", "v2", 5), ("challenger", "v3", 11)}
    assert orjson.loads(status["arms"]) == {"v3": 11}
    assert [tuple(row) for row in rows] == [("v3", 50, 50), ("v3", 90, 99)]


@pytest.mark.parametrize(
    "forgotten", ["UPDATE ModelVersion SET timeout_ms = 80", "SELECT 1 FROM ModelVersion FOR UPDATE"]
)
async def test_a_transaction_left_open_on_an_arms_version_does_not_hold_the_weight(
    database, database_url, versions, forgotten
):
    other = await asyncpg.connect(database_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(forgotten)

    await database.execute("SET lock_timeout = '2s'")
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 0")

    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    await transaction.rollback()
    other.terminate()


async def test_a_version_is_not_retired_in_the_moment_in_which_it_becomes_an_arm(database, database_url, versions):
    await database.execute("UPDATE ServingPolicy SET arms = '[]'")
    other = await asyncpg.connect(database_url)
    transaction = database.transaction()
    await transaction.start()
    await database.execute(f"UPDATE ServingPolicy SET arms = '{arms(versions.third)}'")
    retirement = asyncio.create_task(
        other.execute(f"UPDATE ModelVersion SET status = 'retired' WHERE id = {versions.third}")
    )
    await asyncio.sleep(0.1)

    await transaction.commit()

    with pytest.raises(asyncpg.CheckViolationError, match="v3 of churn is an arm"):
        await asyncio.wait_for(retirement, 30)
    other.terminate()


async def test_two_policies_that_exchange_their_versions_do_not_deadlock(database, database_url, versions):
    other = await asyncpg.connect(database_url)

    async def swap(connection: asyncpg.Connection, *pair: int) -> None:
        for challenger, arm in (pair, pair[::-1]) * 10:
            await connection.execute(
                f"UPDATE ServingPolicy SET challenger_version = {challenger}, arms = '{arms(arm)}'"
            )

    await asyncio.gather(swap(database, versions.second, versions.third), swap(other, versions.third, versions.second))

    assert set((await statuses(database)).values()) == {"champion", "challenger"}
    other.terminate()


async def test_a_policy_is_deleted_with_its_arms(database, versions):
    await database.execute("DELETE FROM ServingPolicy")

    assert set((await statuses(database)).values()) == {"staging"}
