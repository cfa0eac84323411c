"""What an engineer does to the registry, against a real Postgres."""

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest

from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.adapters.postgres.registry.refusal_words import CONSTRAINT_WORDS
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.drift.baseline import Baselines, NumericBaseline, baselines_of
from understudy.core.routing.access import scopes_of
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import apply_document
from understudy.errors import (
    AlreadyRegistered,
    GenerationMoved,
    NotRegistered,
    PolicyRefused,
    RegistryUnavailable,
    SchemaInvalid,
    Unauthenticated,
)
from understudy.ports.registry.registry import Actor, AuditSubject, NewVersion
from understudy.registry.changes import create_key, register_version, set_policy

DANA = Actor("dana@", "cli", "weekly retrain")
SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}


def a_version(version: str, model_name: str = "churn", **values: Any) -> NewVersion:
    return NewVersion(model_name, version, f"s3://models/{model_name}/{version}", "onnx", SCHEMA, **values)


@pytest.fixture
async def registry(database_url: str) -> AsyncIterator[PostgresRegistry]:
    opened = PostgresRegistry(database_url)
    yield opened
    await opened.close()


@pytest.fixture
async def served(registry: PostgresRegistry) -> PostgresRegistry:
    for number in ("6", "7", "8"):
        await register_version(registry, a_version(number, endpoints=("127.0.0.1:9000",)), DANA)
    await set_policy(registry, "churn", {"champion": "6", "challenger": "7", "challenger_weight": 5}, DANA)
    return registry


async def test_a_version_is_registered_with_everything_that_was_said_of_it(registry):
    new = a_version(
        "6",
        output_schema={"tensor": "score", "shape": [1], "score_index": 0},
        metrics={"auc": 0.8},
        protocol="tfserving",
        artifact_digest="sha256:ab",
        base_model="llama-70b-v1",
        family="llama",
        backend={"model_name": "c"},
        deterministic=False,
        cache_ttl_seconds=0,
        timeout_ms=80,
        endpoints=("b:2", "a:1", "a:1"),
    )

    made = await register_version(registry, new, DANA)

    assert made == await registry.show_version("churn", "6")
    assert made.endpoints == ("a:1", "b:2")
    assert (made.status, made.deployed_at) == ("staging", None)
    said = {
        name: value
        for name, value in new._asdict().items()
        if name not in ("endpoints", "group_name", "requires_validation", "replicas")
    }
    assert {name: getattr(made, name) for name in said} == said


async def test_a_version_without_metrics_has_none(registry, database):
    await register_version(registry, a_version("6"), DANA)

    assert await database.fetchval("SELECT metrics IS NULL FROM ModelVersion")


async def test_baselines_that_are_set_at_once_are_both_kept(registry):
    await register_version(registry, a_version("6", metrics={"auc": 0.8}), DANA)
    scores, ages = NumericBaseline(0.4, 0.1), NumericBaseline(40.0, 9.0)

    await asyncio.gather(
        registry.set_baselines("churn", "6", Baselines(scores, {}), DANA, source="one"),
        registry.set_baselines("churn", "6", Baselines(None, {"age": ages}), DANA, source="other"),
    )

    metrics = (await registry.show_version("churn", "6")).metrics
    assert metrics["auc"] == 0.8
    assert baselines_of(metrics) == Baselines(scores, {"age": ages})


async def test_a_baseline_that_is_only_tried_is_shown_and_not_kept(registry):
    made = await register_version(registry, a_version("6"), DANA)

    new = Baselines(NumericBaseline(0.4, 0.1), {})
    tried = await registry.set_baselines("churn", "6", new, DANA, source="x", dry_run=True)

    assert tried.before == made == await registry.show_version("churn", "6")
    assert tried.after.metrics["baseline"]["changed"]["by"] == "dana@"
    with pytest.raises(NotRegistered, match="has no version '7'; it has: 6"):
        await registry.set_baselines("churn", "7", new, DANA, source="x")


async def test_a_version_is_registered_once(registry):
    await register_version(registry, a_version("6"), DANA)

    with pytest.raises(AlreadyRegistered, match="version 6 of churn"):
        await register_version(registry, a_version("6"), DANA)


@pytest.mark.parametrize(
    "broken",
    [
        {"input_schema": {"features": []}},
        {"input_schema": {"features": [{"name": "a", "dtype": "complex128"}]}},
        {"output_schema": {"activation": "magic"}},
        {"output_schema": {"tensor": "score", "also": ["rank"]}, "protocol": "torchserve"},
    ],
)
async def test_a_schema_that_no_proxy_could_use_is_not_registered(registry, broken):
    with pytest.raises(SchemaInvalid):
        await register_version(registry, a_version("6")._replace(**broken), DANA)

    assert await registry.list_versions() == []


STORED = {"features": [{"name": "age", "dtype": "float32", "source": "store"}]}


async def test_a_new_model_whose_stored_features_could_be_another_models_is_not_registered(registry):
    with pytest.raises(PolicyRefused, match="'shop:vip' has a colon"):
        await register_version(registry, a_version("1", "shop:vip")._replace(input_schema=STORED), DANA)
    assert await registry.list_versions() == []

    await register_version(registry, a_version("1", "shop:vip"), DANA)
    await register_version(registry, a_version("2", "shop:vip")._replace(input_schema=STORED), DANA)
    await register_version(registry, a_version("1", "shop")._replace(input_schema=STORED), DANA)


@pytest.mark.parametrize("target", ["http://m:80", "unix:/tmp/s", "m"])
async def test_a_version_with_an_endpoint_that_is_no_host_and_port_is_not_registered(registry, target):
    with pytest.raises(PolicyRefused, match="host:port") as refused:
        await register_version(registry, a_version("6", endpoints=("127.0.0.1:9000", target)), DANA)

    assert "127.0.0.1:9000" in refused.value.next_step
    assert await registry.list_versions() == []


async def test_a_version_with_an_endpoint_at_a_clouds_metadata_service_is_not_registered(registry):
    with pytest.raises(PolicyRefused, match="is link-local") as refused:
        await register_version(registry, a_version("6", endpoints=("127.0.0.1:9000", "169.254.169.254:80")), DANA)

    assert "tfs-churn-7:8500" in refused.value.next_step
    assert await registry.list_versions() == []


@pytest.mark.parametrize(
    "values", [{"timeout_ms": 0}, {"cache_ttl_seconds": -1}, {"protocol": "smtp"}, {"timeout_ms": 10**12}]
)
async def test_a_value_outside_its_range_is_refused_and_not_an_outage(registry, values):
    with pytest.raises(PolicyRefused):
        await register_version(registry, a_version("6", **values), DANA)


@pytest.mark.parametrize("new", [a_version(""), a_version("6", ""), a_version("x" * 101), a_version("6", "x" * 256)])
async def test_names_that_do_not_fit_are_refused(registry, new):
    with pytest.raises(PolicyRefused, match="characters"):
        await register_version(registry, new, DANA)


@pytest.mark.parametrize("name", ["x" * 250, "é" * 125, "/" * 84, "__HIVE_DEFAULT_PARTITION__"])
async def test_a_models_name_that_no_folder_of_the_archive_can_have_is_refused(registry, name):
    with pytest.raises(PolicyRefused, match="name of a folder"):
        await register_version(registry, a_version("6", name), DANA)

    assert (await register_version(registry, a_version("6", "x" * 249), DANA)).version == "6"


async def test_a_dry_run_says_what_would_be_and_writes_nothing(registry):
    would_be = await register_version(registry, a_version("6"), DANA, dry_run=True)

    assert would_be.version == "6"
    assert await registry.list_versions() == []


async def test_a_version_that_is_not_there_is_answered_with_those_that_are(served):
    with pytest.raises(NotRegistered, match="churn has no version '9'; it has: 6, 7, 8"):
        await served.show_version("churn", "9")


async def test_endpoints_come_and_go(served):
    added = await served.add_endpoint("churn", "6", "127.0.0.1:9001", DANA)
    again = await served.add_endpoint("churn", "6", "127.0.0.1:9001", DANA)
    removed = await served.remove_endpoint("churn", "6", "127.0.0.1:9000", DANA)

    assert added.endpoints == again.endpoints == ("127.0.0.1:9000", "127.0.0.1:9001")
    assert removed.endpoints == ("127.0.0.1:9001",)
    with pytest.raises(NotRegistered, match="has no endpoint m:1"):
        await served.remove_endpoint("churn", "6", "m:1", DANA)


@pytest.mark.parametrize("dry_run", [True, False])
async def test_the_last_endpoint_of_the_champion_stays_and_a_dry_run_says_so(served, dry_run):
    with pytest.raises(
        PolicyRefused, match="is the last endpoint of version 6 of churn, which is the champion"
    ) as refused:
        await served.remove_endpoint("churn", "6", "127.0.0.1:9000", DANA, dry_run=dry_run)

    assert "INSERT INTO ModelEndpoint" in refused.value.next_step
    assert (await served.show_version("churn", "6")).endpoints == ("127.0.0.1:9000",)


async def test_a_policy_is_told_in_version_texts(served, database):
    await database.execute(
        """INSERT INTO ProxyInstance (instance, generations, seen_at) VALUES
           ('a', '{"churn": 1}', now()), ('b', '{"churn": 0}', now()),
           ('gone', '{"churn": 1}', now() - INTERVAL '1 hour')"""
    )

    policy = (await served.show_model("churn")).policy

    assert policy is not None
    assert (policy.champion, policy.challenger, policy.challenger_weight, policy.shadow) == ("6", "7", 5, None)
    assert (policy.generation, policy.updated_by) == (1, "dana@")
    assert (policy.proxies, policy.proxies_on_generation) == (2, 1)


async def test_every_model_is_listed_also_one_without_policy(served):
    await register_version(served, a_version("1", "fraud"), DANA)

    models = await served.list_models()

    assert [(model.model_name, model.version_count, model.policy is None) for model in models] == [
        ("churn", 3, False),
        ("fraud", 1, True),
    ]
    with pytest.raises(NotRegistered, match="there are: churn, fraud"):
        await served.show_model("spam")


async def test_a_change_of_policy_is_audited_with_its_origin(served):
    changed = await set_policy(
        served, "churn", {"challenger_weight": 50, "shadow": "8", "category_roles": {"vip": "champion"}}, DANA
    )

    entry = (await served.list_audit("churn"))[0]
    policy = changed.after
    assert (policy.generation, policy.shadow, policy.category_roles) == (2, "8", {"vip": "champion"})
    assert (entry.actor, entry.via, entry.reason, entry.action) == ("dana@", "cli", "weekly retrain", "update")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["challenger_weight"], entry.after["challenger_weight"]) == (5, 50)
    assert [row.generation for row in await served.list_audit(limit=1)] == [2]


async def test_what_the_database_refuses_is_told_in_its_words_with_its_advice(served):
    with pytest.raises(PolicyRefused) as refused:
        await set_policy(served, "churn", {"champion": "7"}, DANA)

    assert refused.value.detail == "version 7 of churn cannot be challenger and champion at once"
    assert "challenger_version = NULL" in refused.value.next_step


@pytest.mark.parametrize(
    "changes",
    [
        {"challenger_weight": "5"},
        {"challenger_weight": True},
        {"challenger_weight": 10**12},
        {"challenger_weight": 101},
        {"fallback": 1},
        {"generation": 1},
        {"champion": None},
        {"category_roles": {"vip": "boss"}},
        {"salt": "s" * 256},
    ],
)
async def test_a_change_that_makes_no_sense_is_refused_and_not_an_outage(served, changes):
    with pytest.raises(PolicyRefused):
        await set_policy(served, "churn", changes, DANA)

    assert len(await served.list_audit(subject=AuditSubject.POLICY)) == 1


async def test_a_change_based_on_an_old_generation_is_refused(served):
    await set_policy(served, "churn", {"challenger_weight": 6}, DANA, expected_generation=1)

    with pytest.raises(GenerationMoved, match="at generation 2, not 1"):
        await set_policy(served, "churn", {"challenger_weight": 7}, DANA, expected_generation=1)


async def test_of_two_changes_based_on_one_generation_one_wins(served):
    changes = (set_policy(served, "churn", {"challenger_weight": w}, DANA, expected_generation=1) for w in (10, 20))

    results = await asyncio.gather(*changes, return_exceptions=True)

    assert sorted(type(result).__name__ for result in results) == ["ChangedPolicy", "GenerationMoved"]


async def test_a_dry_run_of_a_change_is_judged_and_taken_back(served):
    would_be = await set_policy(served, "churn", {"challenger_weight": 50}, DANA, dry_run=True)
    with pytest.raises(PolicyRefused):
        await set_policy(served, "churn", {"challenger_weight": 500}, DANA, dry_run=True)

    held = (await served.show_model("churn")).policy
    assert would_be.after.challenger_weight == 50
    assert held is not None
    assert (held.challenger_weight, held.generation) == (5, 1)


async def test_a_first_policy_needs_a_champion_that_is_registered(registry):
    await register_version(registry, a_version("6"), DANA)

    with pytest.raises(PolicyRefused, match="needs a champion"):
        await set_policy(registry, "churn", {}, DANA)
    with pytest.raises(NotRegistered, match="no version '7'"):
        await set_policy(registry, "churn", {"champion": "7"}, DANA)


async def test_a_key_that_was_made_opens_until_it_is_revoked(registry, database_url):
    source = PostgresPolicySource(database_url)
    key = await create_key(registry, ["predict:churn", "read", "read"], "for the shop", DANA)
    keys = apply_document(PolicySnapshot(), await source.load(), complete=True).keys

    scopes = scopes_of(keys, f"Bearer {key.credential}", needs_key=True, now=0.0)
    revoked = await registry.revoke_key(key.record.id, DANA)
    left = apply_document(PolicySnapshot(), await source.load(), complete=True).keys

    assert scopes == {"predict:churn", "read"}
    assert revoked.revoked_at is not None
    assert await registry.revoke_key(key.record.id, DANA) == revoked
    with pytest.raises(Unauthenticated):
        scopes_of(left, f"Bearer {key.credential}", needs_key=True, now=0.0)
    await source.close()


async def test_the_secret_of_a_key_is_nowhere_in_the_database(registry, database):
    key = await create_key(registry, ["operate"], None, DANA)

    stored = await database.fetchval("SELECT k::text FROM ApiKey k")
    assert key.secret not in stored
    assert sha256(key.secret.encode()).hexdigest() in stored
    assert [record.id for record in await registry.list_keys()] == [key.record.id]


async def test_so_many_of_the_newest_keys_are_listed_oldest_first(registry):
    made = [(await create_key(registry, ["read"], f"note {number}", DANA)).record for number in range(3)]

    assert await registry.list_keys(newest=2) == made[1:]
    assert await registry.list_keys(newest=9) == await registry.list_keys() == made


@pytest.mark.parametrize("scopes", [[], ["admin"], ["predict:"], ["admin:churn"], ["read:" + "m" * 256]])
async def test_a_key_with_a_scope_that_does_not_exist_is_not_made(registry, scopes):
    with pytest.raises(PolicyRefused):
        await create_key(registry, scopes, None, DANA)

    assert await registry.list_keys() == []


async def test_a_key_that_is_not_there_cannot_be_revoked(registry):
    with pytest.raises(NotRegistered, match="no key 'k9'"):
        await registry.revoke_key("k9", DANA)


async def test_a_registry_that_is_away_says_so_without_the_password():
    registry = PostgresRegistry("postgresql://me:hunter2@127.0.0.1:1/nothing")

    with pytest.raises(RegistryUnavailable) as away:
        await registry.list_models()

    assert "hunter2" not in str(away.value)


async def test_a_registry_behind_a_lock_gives_up_in_time(served, database_url, database):
    impatient = PostgresRegistry(database_url, timeout_seconds=0.5)
    transaction = database.transaction()
    await transaction.start()
    await database.execute("SELECT * FROM ServingPolicy FOR UPDATE")

    with pytest.raises(RegistryUnavailable):
        await set_policy(impatient, "churn", {"challenger_weight": 9}, DANA)

    await transaction.rollback()
    assert (await served.list_audit())[0].generation == 1
    await impatient.close()


async def test_a_model_server_that_is_added_reaches_the_policy_document(served, database_url):
    await served.add_endpoint("churn", "7", "127.0.0.1:9002", DANA)
    source = PostgresPolicySource(database_url)

    snapshot = apply_document(PolicySnapshot(), await source.load(), complete=True)

    assert snapshot.policies["churn"].versions["7"].endpoints == ("127.0.0.1:9000", "127.0.0.1:9002")
    await source.close()


@pytest.mark.parametrize("name", ["a\0b", "a\udc80b"])
async def test_a_name_that_postgres_cannot_hold_is_not_registered_and_no_outage(registry, name):
    for asked in (registry.show_model(name), registry.show_version(name, "1"), registry.list_versions(name)):
        with pytest.raises(NotRegistered, match="U\\+0000 or half a surrogate pair"):
            await asked
    with pytest.raises(PolicyRefused):
        await registry.add_version(a_version("6", name), DANA)
    with pytest.raises(PolicyRefused):
        await set_policy(registry, "churn", {"salt": "s"}, Actor("dana", "cli", name))


@pytest.mark.parametrize("text", ["a\0b", "a\udc80b"])
async def test_a_text_that_postgres_cannot_hold_is_refused_in_words_whatever_it_is_written_to(
    served, database_url, text
):
    rollouts = PostgresRolloutStore(database_url, timeout_seconds=5)
    written = (
        set_policy(served, "churn", {"guard": "alert"}, Actor("dana", "cli", text)),
        rollouts.roll_back("churn", Actor("dana", "cli", text)),
        create_key(served, ["read"], text, DANA),
    )

    for change in written:
        with pytest.raises(PolicyRefused, match="a text has U\\+0000 or half a surrogate pair in it"):
            await change


async def test_every_check_constraint_of_the_registrys_tables_has_words(database):
    tables = ["modelversion", "modelendpoint", "servingpolicy", "policyfile", "apikey", "subscription"]
    query = """
        SELECT conname FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text = ANY ($1) ORDER BY conname
    """

    assert [row["conname"] for row in await database.fetch(query, tables)] == sorted(CONSTRAINT_WORDS)


async def test_a_protocol_that_there_is_none_of_is_refused_with_those_that_there_are(registry):
    with pytest.raises(PolicyRefused, match="oip, tfserving and torchserve; over HTTP oip-http") as refused:
        await register_version(registry, a_version("6", protocol="rest"), DANA)

    assert "check constraint" not in refused.value.detail
    assert "Triton, MLServer and KServe" in refused.value.next_step
