"""Who changed a version, an endpoint or a key is written down, whichever way it was changed."""

from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest
from worlds.rollout import two_versions

from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, AuditSubject, NewVersion
from understudy.registry.changes import create_key, register_version, set_policy

HASH = "0a" * 32
DANA, KIM = Actor("dana@", "cli", "weekly retrain"), Actor("kim@", "cli")
IN_ORDER = "SELECT * FROM RegistryAudit WHERE id > $1 ORDER BY id"


@pytest.fixture
async def champion(database: asyncpg.Connection) -> int:
    """The id of a champion with one endpoint."""
    ids = await two_versions(database)
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, '127.0.0.1:9000')", ids["6"]
    )
    return ids["6"]


@pytest.fixture
async def since(database: asyncpg.Connection, champion: int) -> int:
    """The newest row of the audit once the versions were registered."""
    return int(await database.fetchval("SELECT coalesce(max(id), 0) FROM RegistryAudit"))


def told(row: asyncpg.Record) -> tuple[Any, ...]:
    values = [None if row[side] is None else orjson.loads(row[side]) for side in ("before", "after")]
    return row["subject"], row["model_name"], row["version"], row["action"], *values


CHANGES: dict[str, list[tuple[Any, ...]]] = {
    "UPDATE ModelEndpoint SET target = 'thief.example:1' WHERE model_version_id = {id}": [
        ("endpoint", "update", {"target": "127.0.0.1:9000"}, {"target": "thief.example:1"})
    ],
    "UPDATE ModelVersion SET timeout_ms = 1, deterministic = FALSE WHERE id = {id}": [
        ("version", "update", {"timeout_ms": 500, "deterministic": True}, {"timeout_ms": 1, "deterministic": False})
    ],
    "UPDATE ModelVersion SET cache_ttl_seconds = 9 WHERE id = {id}": [
        ("version", "update", {"cache_ttl_seconds": 300}, {"cache_ttl_seconds": 9})
    ],
    "UPDATE ModelVersion SET timeout_ms = timeout_ms WHERE id = {id}": [],
    "UPDATE ServingPolicy SET challenger_version = NULL, challenger_weight = 0": [],
}


@pytest.mark.parametrize("statement", CHANGES)
async def test_a_change_by_plain_sql_is_one_row_with_what_changed(database, champion, since, statement):
    await database.execute("SET understudy.actor = 'dana@'; SET understudy.via = 'psql'; SET understudy.reason = 'why'")

    await database.execute(statement.format(id=champion))

    rows = await database.fetch(IN_ORDER, since)
    assert [told(row) for row in rows] == [(one[0], "churn", "6", *one[1:]) for one in CHANGES[statement]]
    assert {(row["actor"], row["via"], row["reason"]) for row in rows} == (
        {("dana@", "psql", "why")} if rows else set()
    )


async def test_retire_restore_and_delete_are_audited_with_the_endpoints_that_go_along(database, champion, since):
    third = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
        " VALUES ('fresh', '1', 's3://models', 'onnx', '{}') RETURNING id"
    )
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'm:1'), ($1, 'm:2')", third
    )
    for status in ("retired", "staging"):
        await database.execute("UPDATE ModelVersion SET status = $2 WHERE id = $1", third, status)

    await database.execute("DELETE FROM ModelVersion WHERE id = $1", third)

    rows = [told(row) for row in await database.fetch(IN_ORDER, since)]
    assert [(subject, action) for subject, _, _, action, *_ in rows] == [
        ("version", "insert"),
        *[("endpoint", "insert")] * 2,
        *[("version", "update")] * 2,
        ("version", "delete"),
        *[("endpoint", "delete")] * 2,
    ]
    assert {row[1:3] for row in rows} == {("fresh", "1")}
    assert [row[4:] for row in rows[3:5]] == [
        ({"status": "staging"}, {"status": "retired"}),
        ({"status": "retired"}, {"status": "staging"}),
    ]


async def test_an_endpoint_that_moves_to_another_version_leaves_one_and_comes_to_the_other(database, champion, since):
    other = await database.fetchval("SELECT id FROM ModelVersion WHERE version = '7'")
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'm:5')", champion)

    await database.execute("UPDATE ModelEndpoint SET model_version_id = $1 WHERE target = 'm:5'", other)

    rows = [told(row)[:4] for row in await database.fetch(IN_ORDER, since)]
    assert rows[1:] == [("endpoint", "churn", "6", "delete"), ("endpoint", "churn", "7", "insert")]


async def test_keys_made_changed_revoked_and_emptied_are_audited_without_their_hash(database):
    await database.execute("INSERT INTO ApiKey (id, sha256, scopes) VALUES ('k1', $1, '{operate}')", HASH)
    await database.execute("UPDATE ApiKey SET scopes = '{operate,read}'")
    await database.execute("UPDATE ApiKey SET revoked_at = now()")
    await database.execute("UPDATE ApiKey SET sha256 = repeat('0b', 32)")
    await database.execute("TRUNCATE ApiKey")

    rows = await database.fetch("SELECT *, RegistryAudit::text AS whole FROM RegistryAudit ORDER BY id")
    assert [(row["subject"], row["subject_id"], row["model_name"], row["action"]) for row in rows] == [
        ("key", "k1", None, action) for action in ("insert", "update", "update", "update", "delete")
    ]
    assert told(rows[1])[4:] == ({"scopes": ["operate"]}, {"scopes": ["operate", "read"]})
    (was,), (is_now,) = (list(side.values()) for side in told(rows[3])[4:])
    assert was != is_now
    assert not [row for row in rows if HASH in row["whole"] or "0b" * 32 in row["whole"]]


async def test_a_row_of_the_audit_stays_small_however_long_the_values_are(database, champion, since):
    schema = orjson.dumps({"features": [{"name": f"feature_{number}", "dtype": "float32"} for number in range(4_000)]})

    await database.execute("UPDATE ModelVersion SET metrics = $2 WHERE id = $1", champion, schema.decode())

    (row,) = await database.fetch(IN_ORDER, since)
    assert len(row["after"]) < 400
    assert list(orjson.loads(row["after"])["metrics"]) == ["bytes", "sha256"]


async def test_the_audits_list_has_policies_versions_endpoints_and_keys_with_who_changed_them(database_url):
    registry = PostgresRegistry(database_url)
    schema = {"features": [{"name": "age", "dtype": "float32"}]}
    await register_version(registry, NewVersion("fresh", "1", "s3://models", "onnx", schema, endpoints=("m:1",)), DANA)
    await set_policy(registry, "fresh", {"champion": "1"}, DANA)
    await registry.add_endpoint("fresh", "1", "m:2", KIM)
    await registry.remove_endpoint("fresh", "1", "m:1", KIM)
    key = await create_key(registry, ["read"], None, KIM)
    await registry.revoke_key(key.record.id, DANA)

    everything = await registry.list_audit()
    of_model = await registry.list_audit("fresh", limit=3)
    policies = await registry.list_audit(subject=AuditSubject.POLICY)
    await registry.close()

    assert [(entry.subject.value, entry.action, entry.actor) for entry in everything] == [
        ("key", "update", "dana@"),
        ("key", "insert", "kim@"),
        ("endpoint", "delete", "kim@"),
        ("endpoint", "insert", "kim@"),
        ("policy", "insert", "dana@"),
        ("endpoint", "insert", "dana@"),
        ("version", "insert", "dana@"),
    ]
    assert of_model == everything[2:5]
    assert policies == [everything[4]]
    assert {(entry.via, entry.reason) for entry in everything} == {("cli", "weekly retrain"), ("cli", None)}


FORGERIES = (
    "INSERT INTO RegistryAudit (actor, via, subject, subject_id, action) VALUES ('x', 'y', 'key', 'k', 'insert')",
    "UPDATE RegistryAudit SET actor = 'x'",
    "DELETE FROM RegistryAudit",
    "TRUNCATE RegistryAudit",
)


@pytest.mark.parametrize("statement", FORGERIES)
async def test_the_audit_is_not_forged_rewritten_or_emptied(database, champion, statement):
    with pytest.raises(asyncpg.CheckViolationError, match="RegistryAudit is written by the triggers") as refused:
        await database.execute(statement)

    assert refused.value.detail == "E203"
    assert refused.value.hint


async def test_an_engineer_is_audited_under_their_login_whatever_they_sign_and_cannot_forge(
    database, database_url, champion, since
):
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_engineer")
    try:
        _, _, place = database_url.rpartition("@")
        session = await asyncpg.connect(f"postgresql://{name}:secret@{place}", timeout=10)
        await session.execute("SET understudy.actor = 'the boss'")

        await session.execute(
            "UPDATE ModelEndpoint SET target = 'thief.example:1' WHERE model_version_id = $1", champion
        )

        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await session.execute(
                "SELECT understudy_record_change('key', 'k', NULL, NULL, 'insert', NULL, '{}'::jsonb)"
            )
        session.terminate()
        (row,) = await database.fetch(IN_ORDER, since)
        assert row["actor"] == name
    finally:
        await database.execute(f"DROP ROLE {name}")
