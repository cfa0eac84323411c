"""Plain SQL as a user interface: what it refuses, what it writes down, what it tells the proxies."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import orjson
import pytest

SCHEMA = '{"features": [{"name": "age", "dtype": "float32"}]}'


class Registered(NamedTuple):
    """Ids of three versions of churn, one retired, and one version of fraud."""

    first: int
    second: int
    third: int
    retired: int
    fraud: int


async def register(database: asyncpg.Connection, model: str, version: str, **columns: Any) -> int:
    names = ["model_name", "version", "artifact_path", "framework", "input_schema", *columns]
    places = ", ".join(f"${i + 1}" for i in range(len(names)))
    values = [model, version, "s3://models/m", "onnx", SCHEMA, *columns.values()]
    statement = f"INSERT INTO ModelVersion ({', '.join(names)}) VALUES ({places}) RETURNING id"
    return int(await database.fetchval(statement, *values))


@pytest.fixture
async def versions(database: asyncpg.Connection) -> Registered:
    ids = Registered(
        first=await register(database, "churn", "v1"),
        second=await register(database, "churn", "v2"),
        third=await register(database, "churn", "v3"),
        retired=await register(database, "churn", "v0", status="retired"),
        fraud=await register(database, "fraud", "f1"),
    )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight) "
        f"VALUES ('churn', {ids.first}, {ids.second}, 5)"
    )
    return ids


async def state_of(database: asyncpg.Connection) -> list[Any]:
    tables = ("ServingPolicy", "ModelVersion", "PolicyAudit", "PolicyChange")
    return [await database.fetch(f"SELECT t::text FROM {table} t ORDER BY 1") for table in tables]


def arms(version_id: Any, first: Any, last: Any) -> str:
    """Return the statement that gives one arm one range; braces are for ``str.format``."""
    label = version_id if version_id.startswith(("{", "9")) else f'"{version_id}"'
    return f'UPDATE ServingPolicy SET arms = \'[{{{{"version_id": {label}, "first": {first}, "last": {last}}}}}]\''


NONSENSE = {
    "weight over 100": (
        "UPDATE ServingPolicy SET challenger_weight = 101",
        "challenger_weight of churn is a percentage from 0 to 100, not 101",
    ),
    "weight below 0": ("UPDATE ServingPolicy SET challenger_weight = -1", "from 0 to 100, not -1"),
    "weight NULL": ("UPDATE ServingPolicy SET challenger_weight = NULL", "from 0 to 100, not NULL"),
    "no such version": (
        "UPDATE ServingPolicy SET champion_version = 999999",
        "champion_version of churn: there is no model version with the id 999999",
    ),
    "no champion": ("UPDATE ServingPolicy SET champion_version = NULL", "churn needs a champion"),
    "version of another model": (
        "UPDATE ServingPolicy SET challenger_version = {v.fraud}",
        "version f1 is of model fraud, not churn",
    ),
    "retired version": (
        "UPDATE ServingPolicy SET challenger_version = {v.retired}",
        "version v0 of churn is retired and cannot be challenger",
    ),
    "challenger is champion": (
        "UPDATE ServingPolicy SET challenger_version = {v.first}",
        "version v1 of churn cannot be challenger and champion at once",
    ),
    "shadow is champion": (
        "UPDATE ServingPolicy SET shadow_version = {v.first}",
        "version v1 of churn cannot be shadow and champion at once",
    ),
    "shadow is challenger": (
        "UPDATE ServingPolicy SET shadow_version = {v.second}",
        "version v2 of churn cannot be shadow and challenger at once",
    ),
    "weight without challenger": (
        "UPDATE ServingPolicy SET challenger_version = NULL",
        "churn has no challenger to answer 5 % of its calls",
    ),
    "shadow percent": ("UPDATE ServingPolicy SET shadow_percent = 200", "shadow_percent of churn is a percentage"),
    "input sample percent": (
        "UPDATE ServingPolicy SET input_sample_percent = 101",
        "input_sample_percent of churn is a percentage from 0 to 100, not 101",
    ),
    "no input sample percent": (
        "UPDATE ServingPolicy SET input_sample_percent = NULL",
        "input_sample_percent of churn is a percentage from 0 to 100, not NULL",
    ),
    "erasing the inputs of nobody": ("SELECT understudy_redact_inputs('')", "the inputs of no entity"),
    "category role": (
        """UPDATE ServingPolicy SET category_roles = '{{"vip": "boss"}}'""",
        'the role of vip is champion or challenger, not "boss"',
    ),
    "category roles": ("UPDATE ServingPolicy SET category_roles = '[]'", "category_roles of churn is an object"),
    "empty salt": ("UPDATE ServingPolicy SET salt = ''", "the salt of churn is empty"),
    "another model's name": (
        "UPDATE ServingPolicy SET model_name = 'fraud'",
        "the policy of churn cannot become the policy of fraud",
    ),
    "new policy with a bad weight": (
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_weight) VALUES ('fraud', {v.fraud}, 500)",
        "challenger_weight of fraud is a percentage from 0 to 100, not 500",
    ),
    "truncating policies": ("TRUNCATE ServingPolicy", "TRUNCATE would empty servingpolicy"),
    "emptying the endpoints": ("TRUNCATE ModelEndpoint", "TRUNCATE would empty modelendpoint"),
    "forgetting what was shipped": (
        "INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ('s', 1, 100); DELETE FROM SpoolOffset",
        "SpoolOffset says which rows are in PredictionLog: it only moves forward",
    ),
    "shipping again what was shipped": (
        "INSERT INTO SpoolOffset (spool_id, segment, byte_offset) VALUES ('s',1,9); UPDATE SpoolOffset SET segment = 0",
        "SpoolOffset says which rows are in PredictionLog: it only moves forward",
    ),
    "retiring the champion": (
        "UPDATE ModelVersion SET status = 'retired' WHERE id = {v.first}",
        "version v1 of churn is the champion and cannot be retired",
    ),
    "deleting the challenger": (
        "DELETE FROM ModelVersion WHERE id = {v.second}",
        "version v2 of churn is the challenger and cannot be deleted",
    ),
    "deleting what may have been called a moment ago": (
        "DELETE FROM ModelVersion WHERE id = {v.third}",
        "version v3 of churn can be called, or could within the last hour: rows of its calls may be on their way",
    ),
    "deleting what was retired a moment ago": (
        """UPDATE ModelVersion SET status = 'retired' WHERE id = {v.third};
           DELETE FROM ModelVersion WHERE id = {v.third}""",
        "version v3 of churn can be called, or could within the last hour",
    ),
    "half a million features": (
        """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
           SELECT 'churn', 'v9', 'a', 'onnx', jsonb_build_object('features', jsonb_agg(jsonb_build_object('name', n)))
           FROM generate_series(1, 500000) AS n""",
        "the input_schema of version v9 of churn has 8888909 bytes; at most 524288",
    ),
    "more features than a proxy compiles": (
        """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)
           SELECT 'churn', 'v9', 'a', 'onnx', jsonb_build_object('features', jsonb_agg(jsonb_build_object('name', n)))
           FROM generate_series(1, 4097) AS n""",
        "the input_schema of version v9 of churn has 4097 features; at most 4096",
    ),
    "a schema that grows later": (
        """UPDATE ModelVersion SET output_schema = jsonb_build_object('labels', repeat('x', 65536))
           WHERE id = {v.third}""",
        "the output_schema of version v3 of churn has 65550 bytes; at most 65536",
    ),
    "no endpoint for the champion": (
        """INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({v.first}, 'm:1'), ({v.first}, 'm:2');
           DELETE FROM ModelEndpoint WHERE model_version_id = {v.first}""",
        "is the last endpoint of version v1 of churn, which is the champion: nobody would answer for it",
    ),
    "the challenger's endpoint for another version": (
        """INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({v.second}, 'm:1');
           UPDATE ModelEndpoint SET model_version_id = {v.third}""",
        "m:1 is the last endpoint of version v2 of churn, which is the challenger: nobody would answer for it",
    ),
    "no endpoint for an arm": (
        """INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({v.third}, 'm:1');
           """
        + arms("{v.third}", 90, 99)
        + "; DELETE FROM ModelEndpoint",
        "m:1 is the last endpoint of version v3 of churn, which is the arm: nobody would answer for it",
    ),
    "deploying by status": (
        "UPDATE ModelVersion SET status = 'champion' WHERE id = {v.third}",
        "version v3 of churn does not become champion by its status",
    ),
    "demoting by status": (
        "UPDATE ModelVersion SET status = 'staging' WHERE id = {v.first}",
        "version v1 of churn is the champion: its status follows ServingPolicy",
    ),
    "another schema": (
        "UPDATE ModelVersion SET input_schema = '{{}}' WHERE id = {v.first}",
        "version v1 of churn was deployed: its input_schema does not change any more",
    ),
    "another reading of the output": (
        "UPDATE ModelVersion SET output_schema = '{{\"score_index\": 0}}' WHERE id = {v.first}",
        "version v1 of churn was deployed: its output_schema does not change any more",
    ),
    "another model behind the version": (
        'UPDATE ModelVersion SET backend = \'{{"model_name": "x"}}\' WHERE id = {v.first}',
        "version v1 of churn was deployed: its backend does not change any more",
    ),
    "another artifact": ("UPDATE ModelVersion SET artifact_path = 'x' WHERE id = {v.first}", "its artifact_path does"),
    "another label": ("UPDATE ModelVersion SET version = 'v9' WHERE id = {v.first}", "its version does not change"),
    "rewriting the audit": ("UPDATE PolicyAudit SET actor = 'nobody'", "no row of it changes"),
    "deleting the audit": ("DELETE FROM PolicyAudit", "no row of it changes"),
    "emptying the audit": ("TRUNCATE PolicyAudit", "no row of it changes"),
    "forging the audit": (
        "INSERT INTO PolicyAudit (model_name, generation, actor, via, action) VALUES ('churn', 9, 'x', 'y', 'update')",
        "written by the trigger on ServingPolicy",
    ),
    "turning the generation back": ("UPDATE PolicyChange SET generation = 0", "keeps generations from going back"),
    "arms that are no array": ("UPDATE ServingPolicy SET arms = '{{}}'", "arms of churn is an array of ranges"),
    "no arms at all": ("UPDATE ServingPolicy SET arms = NULL", "arms of churn is an array of ranges"),
    "an arm that is no object": ("UPDATE ServingPolicy SET arms = '[9]'", "a range is an object, not 9"),
    "an arm with another key": (
        """UPDATE ServingPolicy SET arms = '[{{"version_id": {v.third}, "first": 9, "last": 9, "weight": 1}}]'""",
        "a range has version_id, first and last, and nothing else",
    ),
    "an arm without a last bucket": (
        """UPDATE ServingPolicy SET arms = '[{{"version_id": {v.third}, "first": 90}}]'""",
        "a range has version_id, first and last, and nothing else",
    ),
    "an arm by its label": (arms("v3", 90, 99), "version_id is the id of a version, not v3"),
    "an arm of half a bucket": (arms("{v.third}", 90.5, 99), "buckets from 0 to 99, not 90.5 and 99"),
    "an arm beyond the last bucket": (arms("{v.third}", 90, 100), "buckets from 0 to 99, not 90 and 100"),
    "an arm before the first bucket": (arms("{v.third}", -1, 9), "buckets from 0 to 99, not -1 and 9"),
    "an arm that ends before it begins": (arms("{v.third}", 90, 89), "the first bucket, 90, comes after the last, 89"),
    "an arm in nine ranges": (
        """UPDATE ServingPolicy SET arms = (SELECT jsonb_agg(jsonb_build_object(
           'version_id', {v.third}, 'first', 80 + 2 * n, 'last', 80 + 2 * n)) FROM generate_series(0, 8) AS n)""",
        "arms of churn: 9 ranges; at most 8",
    ),
    "five arms": (
        """UPDATE ServingPolicy SET arms = (SELECT jsonb_agg(jsonb_build_object(
           'version_id', n, 'first', n, 'last', n)) FROM generate_series(90, 94) AS n)""",
        "at most 4 versions beside champion and challenger",
    ),
    "an arm of no version": (arms("999999", 90, 99), "there is no model version with the id 999999"),
    "an arm of another model": (arms("{v.fraud}", 90, 99), "version f1 is of model fraud, not churn"),
    "a retired arm": (arms("{v.retired}", 90, 99), "version v0 of churn is retired and cannot be an arm"),
    "the champion as an arm": (arms("{v.first}", 90, 99), "version v1 of churn cannot be an arm and champion at once"),
    "the challenger as an arm": (
        arms("{v.second}", 90, 99),
        "version v2 of churn cannot be an arm and challenger at once",
    ),
    "arms that overlap": (
        """UPDATE ServingPolicy SET arms = '[{{"version_id": {v.third}, "first": 90, "last": 99}},
           {{"version_id": {v.third}, "first": 80, "last": 90}}]'""",
        "the buckets 90 to 99 and 80 to 90 overlap",
    ),
    "an arm in the challenger's buckets": (
        arms("{v.third}", 4, 9),
        "at weight 5 the challenger of churn has the buckets 0 to 4, and version v3 has 4 to 9",
    ),
}


@pytest.mark.parametrize("kind", NONSENSE)
async def test_nonsense_is_refused_with_a_hint_and_changes_nothing(database, versions, kind):
    statement, message = NONSENSE[kind]
    before = await state_of(database)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(statement.format(v=versions))

    assert message in refused.value.message
    assert refused.value.detail == "E203"
    assert refused.value.hint
    assert await state_of(database) == before


async def test_the_statement_that_a_hint_proposes_works(database, versions):
    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(f"UPDATE ServingPolicy SET champion_version = {versions.second}")

    assert refused.value.hint is not None
    await database.execute(refused.value.hint.partition(": ")[2])

    policy = await database.fetchrow("SELECT * FROM understudy_status")
    assert (policy["champion"], policy["challenger"], policy["challenger_weight"]) == ("v2", None, 0)


ACCEPTED: dict[str, tuple[str, str, dict[str, tuple[Any, Any]]]] = {
    "weight": ("UPDATE ServingPolicy SET challenger_weight = 50", "update", {"challenger_weight": (5, 50)}),
    "rollback": ("UPDATE ServingPolicy SET challenger_weight = 0", "update", {"challenger_weight": (5, 0)}),
    "categories": (
        """UPDATE ServingPolicy SET category_roles = '{"vip": "champion"}'""",
        "update",
        {"category_roles": ({}, {"vip": "champion"})},
    ),
    "salt": ("UPDATE ServingPolicy SET salt = 'r7'", "update", {"salt": (None, "r7")}),
    "arms": (
        """UPDATE ServingPolicy SET arms = (SELECT jsonb_build_array(jsonb_build_object('version_id', id, 'first', 90,
           'last', 99)) FROM ModelVersion WHERE version = 'v3')""",
        "update",
        {"arms": ([], [{"version_id": 3, "first": 90, "last": 99}])},
    ),
    "deletion": ("DELETE FROM ServingPolicy", "delete", {}),
}


@pytest.mark.parametrize("kind", ACCEPTED)
async def test_each_accepted_change_is_exactly_one_audit_row(database, versions, kind):
    statement, action, expected = ACCEPTED[kind]
    await database.execute("SET application_name = 'psql'; SET understudy.reason = 'ticket 7'")

    await database.execute(statement)

    rows = await database.fetch("SELECT * FROM PolicyAudit ORDER BY id")
    assert [row["action"] for row in rows] == ["insert", action]
    after = orjson.loads(rows[1]["after"] or "{}")
    before = orjson.loads(rows[1]["before"])
    assert {name: (before[name], after[name]) for name in expected} == expected
    assert (rows[1]["actor"], rows[1]["via"], rows[1]["reason"]) == (
        await database.fetchval("SELECT session_user"),
        "psql",
        "ticket 7",
    )
    assert rows[1]["generation"] == 2


async def test_an_update_that_changes_nothing_is_no_change(database, versions):
    before = await state_of(database)

    touched = await database.execute(
        "UPDATE ServingPolicy SET challenger_weight = 5, generation = 77, updated_by = 'x'"
    )

    assert touched == "UPDATE 1"
    assert await state_of(database) == before


async def test_a_rolled_back_change_leaves_no_trace(database, versions):
    before = await state_of(database)
    transaction = database.transaction()
    await transaction.start()
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 50")

    await transaction.rollback()

    assert await state_of(database) == before


async def test_the_generation_never_goes_back(database, versions):
    seen = [await database.fetchval("SELECT generation FROM ServingPolicy")]

    await database.execute("UPDATE ServingPolicy SET challenger_weight = 6, generation = 1")
    seen.append(await database.fetchval("SELECT generation FROM ServingPolicy"))
    await database.execute("DELETE FROM ServingPolicy")
    seen.append(await database.fetchval("SELECT max(generation) FROM PolicyChange WHERE model_name = 'churn'"))
    await database.execute(
        f"INSERT INTO ServingPolicy (model_name, champion_version, generation) VALUES ('churn', {versions.first}, 1)"
    )
    seen.append(await database.fetchval("SELECT generation FROM ServingPolicy"))
    await database.execute(
        f"INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', {versions.second}) "
        "ON CONFLICT (model_name) DO UPDATE SET champion_version = excluded.champion_version"
    )
    seen.append(await database.fetchval("SELECT generation FROM ServingPolicy"))

    assert seen == [1, 2, 3, 4, 5]


async def test_a_policy_made_again_while_its_deletion_commits_gets_a_later_generation(database, database_url, versions):
    other = await asyncpg.connect(database_url)
    transaction = database.transaction()
    await transaction.start()
    await database.execute("DELETE FROM ServingPolicy")
    insertion = asyncio.create_task(
        other.execute(f"INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', {versions.third})")
    )
    await asyncio.sleep(0.1)

    await transaction.commit()
    await asyncio.wait_for(insertion, 30)

    generations = await database.fetch("SELECT generation FROM PolicyAudit ORDER BY id")
    assert [row["generation"] for row in generations] == [1, 2, 3]
    other.terminate()


async def test_changes_of_one_policy_at_once_are_one_after_the_other(database, database_url, versions):
    connections = [await asyncpg.connect(database_url) for _ in range(5)]

    async def flip(connection: asyncpg.Connection, start: int) -> None:
        for weight in range(start, start + 10):
            await connection.execute(f"UPDATE ServingPolicy SET challenger_weight = {weight}")

    await asyncio.gather(*(flip(connection, 10 + 10 * n) for n, connection in enumerate(connections)))

    generations = await database.fetch("SELECT generation FROM PolicyAudit ORDER BY generation")
    assert [row["generation"] for row in generations] == list(range(1, 52))
    for connection in connections:
        connection.terminate()


async def test_the_status_of_versions_follows_the_policy(database, versions):
    async def statuses() -> dict[str, str]:
        rows = await database.fetch("SELECT version, status FROM ModelVersion WHERE model_name = 'churn'")
        return {row["version"]: row["status"] for row in rows}

    at_first = await statuses()
    await database.execute(
        f"UPDATE ServingPolicy SET champion_version = {versions.second}, challenger_version = {versions.third}, "
        f"shadow_version = {versions.first}"
    )
    at_last = await statuses()
    await database.execute("DELETE FROM ServingPolicy")

    assert at_first == {"v0": "retired", "v1": "champion", "v2": "challenger", "v3": "staging"}
    assert at_last == {"v0": "retired", "v1": "shadow", "v2": "champion", "v3": "challenger"}
    assert await statuses() == {"v0": "retired", "v1": "staging", "v2": "staging", "v3": "staging"}
    assert await database.fetchval("SELECT count(*) FROM ModelVersion WHERE deployed_at IS NOT NULL") == 3


async def test_the_champion_before_is_kept(database, versions):
    await database.execute(f"UPDATE ServingPolicy SET champion_version = {versions.third}, previous_champion = 77")
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 9")

    assert await database.fetchval("SELECT previous_champion FROM ServingPolicy") == versions.first


@pytest.mark.parametrize(
    "forgotten",
    [
        "UPDATE ModelVersion SET metrics = '{}'",
        "UPDATE ModelVersion SET timeout_ms = timeout_ms + 1",
        "INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'other:1' FROM ModelVersion",
        "SELECT 1 FROM ModelVersion FOR UPDATE",
    ],
)
async def test_a_transaction_left_open_on_the_versions_does_not_hold_the_weight(
    database, database_url, versions, forgotten
):
    other = await asyncpg.connect(database_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute(forgotten)

    await database.execute("SET lock_timeout = '2s'")
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 0")

    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    await transaction.commit()
    assert await database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    other.terminate()


async def test_a_version_is_not_retired_in_the_moment_in_which_it_becomes_champion(database, database_url, versions):
    other = await asyncpg.connect(database_url)
    transaction = database.transaction()
    await transaction.start()
    await database.execute(f"UPDATE ServingPolicy SET champion_version = {versions.third}")
    retirement = asyncio.create_task(
        other.execute(f"UPDATE ModelVersion SET status = 'retired' WHERE id = {versions.third}")
    )
    await asyncio.sleep(0.1)

    await transaction.commit()

    with pytest.raises(asyncpg.CheckViolationError, match="v3 of churn is the champion"):
        await asyncio.wait_for(retirement, 30)
    other.terminate()


@pytest.fixture
async def engineer(database: asyncpg.Connection, database_url: str):
    """A login role that may change policies and nothing else, and its connection."""
    name = f"engineer_{uuid4().hex[:8]}"
    await database.execute(
        f"CREATE ROLE {name} LOGIN PASSWORD 'e'; GRANT SELECT, UPDATE ON ServingPolicy TO {name}; "
        f"GRANT SELECT ON PolicyAudit TO {name}"
    )
    parts = urlsplit(database_url)
    connection = await asyncpg.connect(
        parts._replace(netloc=f"{name}:e@{parts.hostname}:{parts.port or 5432}").geturl()
    )
    yield name, connection
    connection.terminate()
    await database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_an_engineer_without_rights_on_the_audit_is_audited(database, versions, engineer):
    name, connection = engineer

    await connection.execute("UPDATE ServingPolicy SET challenger_weight = 7 WHERE model_name = 'churn'")

    assert await database.fetchval("SELECT actor FROM PolicyAudit ORDER BY id DESC LIMIT 1") == name
    assert await database.fetchval("SELECT updated_by FROM ServingPolicy") == name


async def test_an_engineer_cannot_sign_with_another_name(database, versions, engineer):
    name, connection = engineer
    await connection.execute("SET understudy.actor = 'the boss'")

    await connection.execute("UPDATE ServingPolicy SET challenger_weight = 7")

    assert await database.fetchval("SELECT actor FROM PolicyAudit ORDER BY id DESC LIMIT 1") == name


async def test_the_owner_of_the_database_may_speak_for_others(database, versions):
    await database.execute("SET understudy.actor = 'dana@'; SET understudy.via = 'cli'")

    await database.execute("UPDATE ServingPolicy SET challenger_weight = 7")

    row = await database.fetchrow("SELECT actor, via FROM PolicyAudit ORDER BY id DESC LIMIT 1")
    assert (row["actor"], row["via"]) == ("dana@", "cli")


@pytest.fixture
async def heard(database_url: str):
    """What was notified, as decoded payloads."""
    payloads: asyncio.Queue[Any] = asyncio.Queue()
    connection = await asyncpg.connect(database_url)
    await connection.add_listener("understudy_policy", lambda *said: payloads.put_nowait(orjson.loads(said[3])))
    yield payloads
    connection.terminate()


async def test_a_committed_change_is_told_once(database, versions, heard):
    await database.execute(f"UPDATE ServingPolicy SET champion_version = {versions.third}, challenger_weight = 9")

    assert await asyncio.wait_for(heard.get(), 30) == {"model": "churn"}
    await asyncio.sleep(0.1)
    assert heard.empty()


@pytest.mark.parametrize(
    ("statement", "model"),
    [
        ("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({v.fraud}, 'm:9000')", "fraud"),
        ("UPDATE ModelVersion SET timeout_ms = 80 WHERE id = {v.third}", "churn"),
        ("DELETE FROM ModelVersion WHERE id = {v.fraud}", "fraud"),
        (f"INSERT INTO ApiKey (id, sha256, scopes) VALUES ('k', '{'a' * 64}', '{{{{predict}}}}')", ""),
    ],
)
async def test_what_a_proxy_must_read_again_is_told(database, versions, heard, statement, model):
    await database.execute(statement.format(v=versions))

    assert (await asyncio.wait_for(heard.get(), 30))["model"] == model


async def test_all_endpoints_of_the_champion_are_replaced_in_one_transaction(database, versions):
    await database.execute(f"INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({versions.first}, 'old:1')")

    async with database.transaction():
        await database.execute("DELETE FROM ModelEndpoint")
        await database.execute(
            f"INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({versions.first}, 'new:1')"
        )

    assert await database.fetchval("SELECT string_agg(target, ' ') FROM ModelEndpoint") == "new:1"


async def wait_until_one_waits(database: asyncpg.Connection) -> None:
    async with asyncio.timeout(20):
        while not await database.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_of_two_who_each_take_one_of_the_champions_two_endpoints_one_is_refused(database, database_url, versions):
    await database.execute(
        f"""INSERT INTO ModelEndpoint (model_version_id, target)
            VALUES ({versions.first}, 'm:1'), ({versions.first}, 'm:2')"""
    )
    other = await asyncpg.connect(database_url)

    async with database.transaction():
        await database.execute("DELETE FROM ModelEndpoint WHERE target = 'm:1'")
        later = asyncio.create_task(other.execute("DELETE FROM ModelEndpoint WHERE target = 'm:2'"))
        await wait_until_one_waits(database)

    with pytest.raises(asyncpg.CheckViolationError, match="m:2 is the last endpoint of version v1"):
        await later
    other.terminate()


async def test_the_endpoints_of_a_version_without_a_role_go(database, versions):
    await database.execute(f"INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({versions.third}, 'm:1')")

    assert await database.execute("DELETE FROM ModelEndpoint") == "DELETE 1"


async def test_a_version_that_was_retired_an_hour_ago_is_deleted_with_its_endpoints(database, versions):
    await database.execute(f"INSERT INTO ModelEndpoint (model_version_id, target) VALUES ({versions.third}, 'm:1')")
    await database.execute(f"UPDATE ModelVersion SET status = 'retired' WHERE id = {versions.third}")
    await database.execute(
        "SET session_replication_role = replica;"  # else triggers keep the past as it was
        "UPDATE PolicyChange SET changed_at = changed_at - INTERVAL '61 minutes';"
        "SET session_replication_role = origin"
    )

    assert await database.execute(f"DELETE FROM ModelVersion WHERE id = {versions.third}") == "DELETE 1"
    assert await database.fetchval("SELECT count(*) FROM ModelEndpoint") == 0


GOOD_TARGETS = ["127.0.0.1:9000", "localhost:1", "tfs-churn-7:8500", "m.prod.svc.cluster.local:65535", "[::1]:8001"]
BAD_TARGETS = [
    "http://m:80",
    "unix:/tmp/s",
    "unix:80",
    "ipv4:80",
    "m",
    "m:",
    "m:0",
    "m:65536",
    "m:80/path",
    "user@m:80",
    "m:80 ",
    "m:80\n",
    " m:80",
    "169.254.169.254:80",
    "169.254.0.1:9000",
    "2852039166:80",
    "0xA9FEA9FE:80",
    "0251.0376.0251.0376:80",
    "256.1.1.1:80",
    "1.2.3:80",
    "[fe80::1]:80",
    "[::ffff:169.254.169.254]:80",
    "[::ffff:a9fe:a9fe]:80",
    "dns:///m:80",
    "-m:80",
    ":80",
    "",
]


@pytest.mark.parametrize("target", GOOD_TARGETS)
async def test_a_host_with_a_port_is_a_target(database, versions, target):
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", versions.first, target
    )

    assert await database.fetchval("SELECT target FROM ModelEndpoint") == target


async def test_anything_but_a_host_with_a_port_is_no_target(database, versions):
    accepted = []
    for target in BAD_TARGETS:
        try:
            await database.execute(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", versions.first, target
            )
        except asyncpg.CheckViolationError:
            continue
        accepted.append(target)

    assert accepted == []


async def log_at(database: asyncpg.Connection, version: int, moment: datetime) -> None:
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at) "
        "VALUES ($1, 'e', $2, 'null', 1, $3)",
        version,
        "0" * 64,
        moment,
    )


async def partitions_of(database: asyncpg.Connection) -> list[str]:
    rows = await database.fetch(
        "SELECT inhrelid::regclass::text AS n FROM pg_inherits i JOIN pg_class c ON c.oid = inhrelid "
        "WHERE c.relkind = 'r' AND inhparent = 'predictionlog'::regclass ORDER BY 1"
    )
    return [row["n"] for row in rows]


async def test_partitions_are_there_from_last_month_to_three_months_ahead(database, versions):
    now = datetime.now(UTC)

    for moment in (now.replace(day=1, hour=0, minute=0) - timedelta(seconds=1), now, now + timedelta(days=85)):
        await log_at(database, versions.first, moment)

    assert len(await partitions_of(database)) == 5
    assert await database.fetchval("SELECT understudy_ensure_partitions()") == 0


async def test_a_month_is_cut_at_midnight_utc_whatever_the_session_says(database, versions):
    await database.execute("SET timezone = 'Pacific/Auckland'")
    midnight = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)

    for moment in (midnight - timedelta(microseconds=1), midnight):
        await log_at(database, versions.first, moment)

    names = await database.fetch("SELECT DISTINCT tableoid::regclass::text AS n FROM PredictionLog ORDER BY 1")
    last_month = midnight - timedelta(days=1)
    assert [row["n"] for row in names] == [f"predictionlog_{m:%Y_%m}" for m in (last_month, midnight)]


async def test_a_month_without_partition_is_made_when_asked_for(database, versions):
    long_ago = datetime.now(UTC) - timedelta(days=300)
    with pytest.raises(asyncpg.CheckViolationError, match="no partition"):
        await log_at(database, versions.first, long_ago)

    made = await database.fetchval("SELECT understudy_ensure_partitions(0, $1)", long_ago)

    await log_at(database, versions.first, long_ago)
    assert made == 2


async def test_two_callers_at_once_make_each_partition_once(database, database_url, versions):
    connections = [await asyncpg.connect(database_url) for _ in range(4)]

    made = await asyncio.gather(*(c.fetchval("SELECT understudy_ensure_partitions(9)") for c in connections))

    assert sorted(made) == [0, 0, 0, 6]
    for connection in connections:
        connection.terminate()


async def test_making_partitions_does_not_wait_for_open_reads_and_writes_of_the_log(database, database_url, versions):
    writer = await asyncpg.connect(database_url)
    transaction = database.transaction()
    await transaction.start()
    await log_at(database, versions.first, datetime.now(UTC))
    await database.fetch("SELECT * FROM PredictionLog")

    made = await asyncio.wait_for(writer.fetchval("SELECT understudy_ensure_partitions(5)"), 30)
    await asyncio.wait_for(log_at(writer, versions.first, datetime.now(UTC)), 30)

    assert made == 2
    await transaction.rollback()
    writer.terminate()


async def test_partitions_far_from_now_are_refused(database):
    with pytest.raises(asyncpg.CheckViolationError, match="two years back"):
        await database.execute("SELECT understudy_ensure_partitions(3, '2001-01-01')")


async def test_the_views_tell_who_answers_and_how_much(database, versions):
    await database.execute(f"UPDATE ServingPolicy SET shadow_version = {versions.third}, shadow_percent = 10")

    status = await database.fetchrow("SELECT * FROM understudy_status")
    split = await database.fetch("SELECT role, version, percent FROM understudy_split WHERE model = 'churn'")

    assert (status["champion"], status["challenger"], status["shadow"], status["generation"]) == ("v1", "v2", "v3", 2)
    assert {tuple(row) for row in split} == {("champion", "v1", 95), ("challenger", "v2", 5), ("shadow", "v3", 10)}
