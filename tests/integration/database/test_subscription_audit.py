"""Who subscribed, changed and removed what is written down, and the release before still lists its audit."""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest

from understudy.adapters.postgres.monitoring.subscriptions import PostgresSubscriptionStore
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.monitoring.notifications import NewSubscription
from understudy.ports.registry.registry import Actor, AuditSubject
from understudy.registry.changes import create_key

DANA, KIM = Actor("dana@", "cli", "our chat"), Actor("kim@", "cli")
ADD = "INSERT INTO Subscription (name, receiver, model_name) VALUES ('ops', 'chat', 'churn')"
LISTED_BEFORE = "SELECT subject FROM registryaudit WHERE subject NOT IN ('version', 'endpoint', 'key')"


@pytest.fixture
async def engineer(database: asyncpg.Connection, database_url: str) -> AsyncIterator[asyncpg.Connection]:
    name = f"test_{uuid4().hex[:12]}"
    await database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_engineer")
    _, _, place = database_url.rpartition("@")
    session = await asyncpg.connect(f"postgresql://{name}:secret@{place}", timeout=10)
    try:
        yield session
    finally:
        await session.close()
        await database.execute(f"DROP ROLE {name}")


def told(row: asyncpg.Record) -> tuple[Any, ...]:
    values = [None if row[side] is None else orjson.loads(row[side]) for side in ("before", "after")]
    return row["name"], row["model_name"], row["action"], *values


async def test_a_subscription_by_plain_sql_is_audited_under_the_login_that_changed_it(database, engineer):
    await engineer.execute("SET understudy.actor = 'the boss'; SET understudy.reason = 'why'")
    for statement in (
        ADD,
        "UPDATE Subscription SET receiver = 'bus', severity = 'error'",
        "UPDATE Subscription SET receiver = 'bus'",
        "DELETE FROM Subscription",
    ):
        await engineer.execute(statement)

    made, changed, removed = await engineer.fetch("SELECT * FROM SubscriptionAudit ORDER BY id")
    login = await engineer.fetchval("SELECT current_user")
    before = {"receiver": "chat", "severity": "info"}
    assert told(changed) == ("ops", "churn", "update", before, {"receiver": "bus", "severity": "error"})
    assert [told(row)[:3] for row in (made, removed)] == [("ops", "churn", "insert"), ("ops", "churn", "delete")]
    assert (told(made)[4]["receiver"], told(removed)[3]["receiver"]) == ("chat", "bus")
    assert {(row["actor"], row["reason"]) for row in (made, changed, removed)} == {(login, "why")}


async def test_the_audits_list_has_subscriptions_and_the_release_before_does_not_meet_them(database, database_url):
    store, registry = PostgresSubscriptionStore(database_url, timeout_seconds=10), PostgresRegistry(database_url)
    await store.add(NewSubscription("ops", "chat", model_name="churn"), DANA)
    await store.remove("ops", KIM, dry_run=True)
    await create_key(registry, ["read"], None, KIM)
    await store.remove("ops", KIM)

    everything = await registry.list_audit()
    of_model = await registry.list_audit("churn")
    of_subscriptions = await registry.list_audit(subject=AuditSubject.SUBSCRIPTION, limit=1)
    of_keys = await registry.list_audit(subject=AuditSubject.KEY)
    await registry.close()

    assert [(entry.subject.value, entry.subject_id, entry.action, entry.actor) for entry in everything] == [
        ("subscription", "ops", "delete", "kim@"),
        ("key", of_keys[0].subject_id, "insert", "kim@"),
        ("subscription", "ops", "insert", "dana@"),
    ]
    assert of_model == [everything[0], everything[2]]
    assert of_subscriptions == [everything[0]]
    assert of_keys == [everything[1]]
    assert everything[2].reason == "our chat"
    assert len({entry.id for entry in everything}) == len(everything)
    assert await database.fetch(LISTED_BEFORE) == []


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO SubscriptionAudit (actor, via, name, action) VALUES ('x', 'y', 'ops', 'insert')",
        "UPDATE SubscriptionAudit SET actor = 'x'",
        "DELETE FROM SubscriptionAudit",
        "TRUNCATE SubscriptionAudit",
        "TRUNCATE Subscription",
    ],
)
async def test_the_audit_of_subscriptions_is_not_forged_rewritten_or_emptied(database, statement):
    await database.execute(ADD)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await database.execute(statement)

    assert (refused.value.detail, refused.value.hint is None) == ("E203", False)
    assert await database.fetchval("SELECT count(*) FROM SubscriptionAudit") == 1


async def test_a_trigger_that_is_hung_on_another_table_forges_no_row_of_the_audit(database):
    await database.execute(
        "CREATE TEMP TABLE mine (LIKE Subscription INCLUDING DEFAULTS); CREATE TRIGGER forge AFTER INSERT ON mine"
        " FOR EACH ROW EXECUTE FUNCTION understudy_record_subscription();"
        " INSERT INTO mine (name, receiver) VALUES ('forged', 'chat'); DROP TABLE mine"
    )

    assert await database.fetchval("SELECT count(*) FROM SubscriptionAudit") == 0
