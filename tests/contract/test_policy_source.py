"""What every source of policies does, in memory and in Postgres."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import orjson
import pytest
from traffic.clusters import put_new_cluster

from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.memory.policy import MemoryPolicySource
from understudy.adapters.postgres.registry.policy import PostgresPolicySource
from understudy.core.routing.policy import PolicySnapshot
from understudy.core.routing.policy_document import apply_document
from understudy.errors import MigrationNeeded, RegistryUnavailable
from understudy.ports.registry.policy import PolicyChange, PolicySource

SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}
KEY = {"id": "k1", "sha256": "ab" * 32, "scopes": ["predict"]}
ENOUGH_SECONDS = 30.0


class World(Protocol):
    """A source, and the means to change what it reads."""

    source: PolicySource

    async def set_weight(self, model_name: str, weight: int) -> None: ...
    async def set_arm(self, model_name: str, version_id: int, first: int, last: int) -> None: ...
    async def delete_policy(self, model_name: str) -> None: ...
    async def add_key(self) -> None: ...

    async def set_cache_secret(self, secret: bytes) -> None: ...
    async def switch_off(self) -> None: ...
    async def reported(self, instance: str) -> Any: ...
    async def in_flight(self, instance: str) -> dict[int, int]: ...
    async def read_xid(self, instance: str) -> int | None: ...
    async def last_change(self) -> int: ...


class MemoryWorld:
    def __init__(self) -> None:
        self._source = MemoryPolicySource()
        self.source: PolicySource = self._source
        for name, first in (("churn", 1), ("fraud", 4)):
            versions = [
                {
                    "id": first + n,
                    "version": f"v{n}",
                    "status": ("champion", "challenger", "staging")[n],
                    "protocol": "oip",
                    "endpoints": ["a:1", "b:2"] if n == 0 else [],
                    "input_schema": SCHEMA,
                    "output_schema": {},
                    "backend": {},
                    "deterministic": True,
                    "cache_ttl_seconds": 300,
                    "timeout_ms": 500,
                }
                for n in range(3)
            ]
            policy = {
                "champion_version": first,
                "challenger_version": first + 1,
                "challenger_weight": 5,
                "shadow_version": None,
                "shadow_percent": 100,
                "input_sample_percent": 0,
                "fallback": True,
                "salt": None,
                "category_roles": {"vip": "champion"},
                "generation": 1,
                "rollout_id": None,
            }
            self._source.put_model(name, {"policy": policy, "versions": versions})

    async def set_weight(self, model_name: str, weight: int) -> None:
        self._source.change_policy(model_name, challenger_weight=weight)

    async def set_arm(self, model_name: str, version_id: int, first: int, last: int) -> None:
        self._source.change_policy(model_name, arms=[{"version_id": version_id, "first": first, "last": last}])

    async def delete_policy(self, model_name: str) -> None:
        self._source.remove_model(model_name)

    async def add_key(self) -> None:
        self._source.put_keys([KEY])

    async def set_cache_secret(self, secret: bytes) -> None:
        self._source.put_cache_secret(secret)

    async def switch_off(self) -> None:
        self._source.available = False

    async def reported(self, instance: str) -> Any:
        return self._source.reported.get(instance)

    async def in_flight(self, instance: str) -> dict[int, int]:
        return self._source.in_flight[instance]

    async def read_xid(self, instance: str) -> int | None:
        return self._source.horizons[instance]

    async def last_change(self) -> int:
        return self._source.last_xid


class PostgresWorld:
    def __init__(self, source: PostgresPolicySource, database: asyncpg.Connection, server_url: str) -> None:
        self.source: PolicySource = source
        self._database = database
        self._server_url = server_url

    async def prepare(self) -> None:
        for name in ("churn", "fraud"):
            ids = [
                await self._database.fetchval(
                    "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema) "
                    "VALUES ($1, $2, 's3://m', 'onnx', $3) RETURNING id",
                    name,
                    f"v{n}",
                    orjson.dumps(SCHEMA).decode(),
                )
                for n in range(3)
            ]
            await self._database.execute(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'b:2'), ($1, 'a:1')", ids[0]
            )
            await self._database.execute(
                "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, status) "
                "VALUES ($1, 'old', 's3://m', 'onnx', '{}', 'retired')",
                name,
            )
            await self._database.execute(
                "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight, "
                """category_roles) VALUES ($1, $2, $3, 5, '{"vip": "champion"}')""",
                name,
                ids[0],
                ids[1],
            )

    async def set_weight(self, model_name: str, weight: int) -> None:
        await self._database.execute(
            f"UPDATE ServingPolicy SET challenger_weight = {weight} WHERE model_name = '{model_name}'"
        )

    async def set_arm(self, model_name: str, version_id: int, first: int, last: int) -> None:
        await self._database.execute(
            "UPDATE ServingPolicy SET arms = $2 WHERE model_name = $1",
            model_name,
            orjson.dumps([{"version_id": version_id, "first": first, "last": last}]).decode(),
        )

    async def delete_policy(self, model_name: str) -> None:
        await self._database.execute(f"DELETE FROM ServingPolicy WHERE model_name = '{model_name}'")

    async def set_cache_secret(self, secret: bytes) -> None:
        await self._database.execute("UPDATE CacheSecret SET secret = $1", secret)

    async def add_key(self) -> None:
        await self._database.execute(f"INSERT INTO ApiKey VALUES ('k1', '{'ab' * 32}', '{{predict}}')")

    async def switch_off(self) -> None:
        name = await self._database.fetchval("SELECT current_database()")
        server = await asyncpg.connect(self._server_url)
        await server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        await server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
        server.terminate()

    async def read_xid(self, instance: str) -> int | None:
        found: int | None = await self._database.fetchval(
            "SELECT read_xid::text::bigint FROM ProxyInstance WHERE instance = $1", instance
        )
        return found

    async def last_change(self) -> int:
        return int(await self._database.fetchval("SELECT max(changed_xid::text::bigint) FROM PolicyChange"))

    async def reported(self, instance: str) -> Any:
        text = await self._database.fetchval("SELECT generations FROM ProxyInstance WHERE instance = $1", instance)
        return None if text is None else orjson.loads(text)

    async def in_flight(self, instance: str) -> dict[int, int]:
        text = await self._database.fetchval("SELECT in_flight FROM ProxyInstance WHERE instance = $1", instance)
        return {int(version_id): calls for version_id, calls in orjson.loads(text).items()}


@pytest.fixture
def memory_world() -> MemoryWorld:
    return MemoryWorld()


@pytest.fixture
async def postgres_world(
    database_url: str, database: asyncpg.Connection, server_url: str
) -> AsyncIterator[PostgresWorld]:
    source = PostgresPolicySource(database_url, timeout_seconds=20, heartbeat_seconds=0.5, reads_cache_secret=True)
    world = PostgresWorld(source, database, server_url)
    await world.prepare()
    yield world
    await source.close()


@pytest.fixture(params=["memory_world", "postgres_world"])
def world(request: pytest.FixtureRequest) -> World:
    chosen: World = request.getfixturevalue(request.param)
    return chosen


@asynccontextmanager
async def listening(source: PolicySource) -> AsyncIterator[tuple["asyncio.Queue[PolicyChange]", "asyncio.Task[None]"]]:
    heard: asyncio.Queue[PolicyChange] = asyncio.Queue()
    task = asyncio.create_task(source.listen(heard.put_nowait))
    assert await asyncio.wait_for(heard.get(), ENOUGH_SECONDS) == PolicyChange(None)
    try:
        yield heard, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_everything_is_read_in_the_shape_that_policies_are_compiled_from(world):
    document = await world.source.load()

    snapshot = apply_document(PolicySnapshot(), document, complete=True)
    churn = snapshot.policies["churn"]
    assert snapshot.rejected == {}
    assert set(snapshot.policies) == {"churn", "fraud"}
    assert (churn.champion.version, churn.challenger and churn.challenger.version) == ("v0", "v1")
    assert (churn.challenger_weight, churn.generation, churn.category_roles) == (5, 1, {"vip": "champion"})
    assert churn.champion.endpoints == ("a:1", "b:2")
    assert set(churn.versions) == {"v0", "v1", "v2"}
    assert document["keys"] == []


async def test_further_arms_are_read_as_who_has_which_bucket(world):
    before = apply_document(PolicySnapshot(), await world.source.load(), complete=True)
    third = before.policies["churn"].versions["v2"]

    await world.set_arm("churn", third.id, 90, 99)

    after = apply_document(before, await world.source.load(["churn"]), complete=False)
    assert before.policies["churn"].arms == {}
    assert after.policies["churn"].arms == dict.fromkeys(range(90, 100), third)
    assert after.policies["churn"].generation == 2


async def test_only_the_named_models_are_read(world):
    document = await world.source.load(["fraud", "unheard of"])

    assert set(document["models"]) == {"fraud", "unheard of"}
    assert document["models"]["unheard of"]["policy"] is None
    assert document["models"]["fraud"]["policy"]["generation"] == 1


async def test_a_poll_tells_what_changed_and_goes_quiet_once_it_is_loaded(world):
    await world.source.load()
    quiet = await world.source.changed_since_last_poll()
    await world.set_weight("churn", 6)

    told = await world.source.changed_since_last_poll()
    document = await world.source.load(list(told))
    after = await world.source.changed_since_last_poll()

    assert (quiet, told, after) == ([], ["churn"], [])
    assert document["models"]["churn"]["policy"]["challenger_weight"] == 6


async def test_what_was_read_because_of_a_notification_is_not_told_by_the_next_poll(world):
    await world.source.load()
    await world.set_weight("churn", 6)
    await world.source.load(["churn"])
    quiet = await world.source.changed_since_last_poll()
    await world.set_weight("churn", 7)

    told = await world.source.changed_since_last_poll()

    assert (quiet, told) == ([], ["churn"])


async def test_a_change_that_could_not_be_loaded_is_told_again(world):
    await world.source.load()
    await world.set_weight("churn", 6)

    told = [await world.source.changed_since_last_poll() for _ in range(2)]

    assert told == [["churn"], ["churn"]]


async def test_a_deleted_policy_is_a_change(world):
    await world.source.load()
    await world.delete_policy("fraud")

    told = await world.source.changed_since_last_poll()

    assert told == ["fraud"]
    assert (await world.source.load(told))["models"]["fraud"]["policy"] is None


async def test_a_new_key_is_told_and_read_with_any_model(world):
    await world.source.load()
    await world.add_key()

    told = await world.source.changed_since_last_poll()
    document = await world.source.load(told)

    assert told == [""]
    assert (document["models"], document["keys"]) == ({}, [KEY])


@pytest.mark.alone
async def test_a_change_is_heard_within_a_second(world):
    async with listening(world.source) as (heard, _):
        await world.set_weight("churn", 7)

        assert await asyncio.wait_for(heard.get(), 1) == PolicyChange("churn")


async def test_changes_are_heard_by_everyone_who_listens(world):
    async with listening(world.source) as (first, _), listening(world.source) as (second, _):
        await world.set_weight("fraud", 7)

        heard = [await asyncio.wait_for(queue.get(), ENOUGH_SECONDS) for queue in (first, second)]

    assert heard == [PolicyChange("fraud")] * 2


async def test_what_an_instance_reports_replaces_what_it_reported_before(world):
    await world.source.report("proxy-1", {"churn": 1}, {4: 2, 5: 1}, None)
    await world.source.report("proxy-1", {"churn": 2, "fraud": 1}, {5: 3}, None)

    assert await world.reported("proxy-1") == {"churn": 2, "fraud": 1}
    assert await world.in_flight("proxy-1") == {5: 3}


async def test_a_change_is_before_the_horizon_once_it_was_polled_and_loaded_and_no_sooner(world):
    await world.source.load()
    await world.set_weight("churn", 7)
    changed = await world.last_change()
    assert world.source.horizon is not None
    assert world.source.horizon <= changed

    names = await world.source.changed_since_last_poll()
    assert world.source.horizon is None
    await world.source.load(names)

    assert world.source.newest_change == changed
    assert world.source.horizon is not None
    assert world.source.horizon > changed


async def test_an_instance_reports_up_to_which_change_it_has_read(world):
    for horizon in (41, None, 2**62):
        await world.source.report("proxy-1", {}, {}, horizon)

        assert await world.read_xid("proxy-1") == horizon


async def test_an_instance_that_signs_off_takes_back_what_it_reported_and_no_other_is_touched(world):
    for instance in ("proxy-1", "proxy-2"):
        await world.source.report(instance, {"churn": 1}, {4: 2}, None)

    await world.source.sign_off("proxy-1")

    assert await world.reported("proxy-1") is None
    assert await world.reported("proxy-2") == {"churn": 1}


async def test_signing_off_twice_or_without_a_report_is_no_error_and_reporting_again_is_possible(world):
    for _ in range(2):
        await world.source.sign_off("proxy-1")

    await world.source.report("proxy-1", {"churn": 3}, {}, None)

    assert await world.reported("proxy-1") == {"churn": 3}


async def test_a_registry_that_is_away_is_told_as_that(world):
    async with listening(world.source) as (_, listener):
        await world.source.load()
        await world.switch_off()

        with pytest.raises(RegistryUnavailable):
            await world.source.load()
        with pytest.raises(RegistryUnavailable):
            await world.source.changed_since_last_poll()
        with pytest.raises(RegistryUnavailable):
            await world.source.report("proxy-1", {}, {}, None)
        with pytest.raises(RegistryUnavailable):
            await world.source.sign_off("proxy-1")
        with pytest.raises(RegistryUnavailable):
            await asyncio.wait_for(listener, ENOUGH_SECONDS)


# -- what only Postgres has --------------------------------------------------------------------------------------------


@pytest.fixture
def source(postgres_world: PostgresWorld) -> PolicySource:
    return postgres_world.source


async def test_a_transaction_that_began_before_a_poll_and_commits_after_it_is_seen(source, database, database_url):
    early = await asyncpg.connect(database_url)
    transaction = early.transaction()
    await transaction.start()
    await early.execute("UPDATE ServingPolicy SET challenger_weight = 9 WHERE model_name = 'churn'")
    await source.load()
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 9 WHERE model_name = 'fraud'")
    before = await source.changed_since_last_poll()
    await source.load(before)

    await transaction.commit()
    after = await source.changed_since_last_poll()

    assert (before, after) == (["fraud"], ["churn"])
    early.terminate()


async def test_a_transaction_that_began_before_a_model_was_read_and_commits_after_it_is_seen(
    source, database, database_url
):
    await source.load()
    other = await asyncpg.connect(database_url)
    transaction = other.transaction()
    await transaction.start()
    await other.execute("UPDATE ServingPolicy SET challenger_weight = 9 WHERE model_name = 'churn'")
    read = await source.load(["churn"])  # as if a notification of an earlier change had come
    await transaction.commit()
    await other.close()

    told = await source.changed_since_last_poll()

    assert read["models"]["churn"]["policy"]["challenger_weight"] != 9
    assert told == ["churn"]


async def test_an_open_transaction_elsewhere_does_not_make_polls_repeat_themselves(source, database, database_url):
    idle = await asyncpg.connect(database_url)
    transaction = idle.transaction()
    await transaction.start()
    await idle.execute("SELECT pg_current_xact_id()")
    await source.load()
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 9 WHERE model_name = 'churn'")

    first = await source.changed_since_last_poll()
    await source.load(first)
    second = await source.changed_since_last_poll()

    assert (first, second) == (["churn"], [])
    await transaction.rollback()
    idle.terminate()


async def test_a_new_secret_of_the_shared_cache_is_told_and_read_with_the_keys_and_with_no_model(world):
    await world.source.load()
    await world.set_cache_secret(b"7" * 32)

    told = await world.source.changed_since_last_poll()
    of_a_model = await world.source.load(["churn"])
    document = await world.source.load(["", "churn"])

    assert told == [""]
    assert "cache_secret" not in of_a_model
    assert document["cache_secret"] == (b"7" * 32).hex()


async def test_a_migrated_database_has_a_secret_of_its_own_for_the_shared_cache(source, database):
    first = (await source.load())["cache_secret"]

    await database.execute("DELETE FROM CacheSecret")

    assert len(bytes.fromhex(first)) == 32
    assert (await source.load())["cache_secret"] is None


async def test_a_revoked_key_is_not_part_of_the_document(source, database):
    await database.execute(f"INSERT INTO ApiKey VALUES ('k1', '{'ab' * 32}', '{{predict}}')")
    held = (await source.load())["keys"]

    await database.execute("UPDATE ApiKey SET revoked_at = now()")

    assert held == [KEY]
    assert (await source.load([]))["keys"] == []


async def test_one_version_that_no_float_can_hold_does_not_hide_the_others(source, database):
    await database.execute("UPDATE ModelVersion SET output_schema = '{\"max\": 1e400}' WHERE version = 'v2'")

    document = await source.load()

    assert [version["version"] for version in document["models"]["churn"]["versions"]] == ["v0", "v1"]


async def test_instances_not_seen_for_a_day_are_forgotten(source, database):
    await database.execute("INSERT INTO ProxyInstance (instance, seen_at) VALUES ('gone', now() - INTERVAL '25 hours')")

    await source.report("here", {}, {}, None)

    assert await database.fetchval("SELECT array_agg(instance) FROM ProxyInstance") == ["here"]


@pytest.mark.alone
async def test_a_report_that_waits_for_somebody_keeps_no_policy_waiting(source, database, database_url):
    loop = asyncio.get_running_loop()
    await source.load()
    other = await asyncpg.connect(database_url)
    await other.execute("BEGIN; LOCK TABLE ProxyInstance")
    reporting = asyncio.create_task(source.report("proxy-1", {}, {}, None))
    await _until(lambda: _connections(database, "understudy-report"), 1)
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 0 WHERE model_name = 'churn'")
    began = loop.time()

    told = await source.changed_since_last_poll()
    document = await source.load(told)

    assert loop.time() - began < 0.5
    assert document["models"]["churn"]["policy"]["challenger_weight"] == 0
    await other.execute("ROLLBACK")
    await reporting
    other.terminate()


@pytest.mark.alone
async def test_a_report_in_vain_leaves_nothing_waiting_in_the_database(postgres_world, database, database_url):
    source = PostgresPolicySource(database_url, timeout_seconds=0.5)
    other = await asyncpg.connect(database_url)
    await other.execute("BEGIN; LOCK TABLE ProxyInstance")

    with pytest.raises(RegistryUnavailable):
        await source.report("proxy-1", {}, {}, None)

    await _until(lambda: _connections(database, "understudy-report"), 0)
    other.terminate()


@pytest.mark.alone
async def test_a_kept_connection_that_is_dead_without_a_sign_costs_a_second(source, database):
    loop = asyncio.get_running_loop()
    await source.load()
    await database.execute("UPDATE ServingPolicy SET challenger_weight = 9 WHERE model_name = 'churn'")
    frozen = await database.fetchval(_PID, "understudy-policies")
    os.kill(frozen, signal.SIGSTOP)
    began = loop.time()
    try:
        told = await source.changed_since_last_poll()
        document = await source.load(told)
    finally:
        os.kill(frozen, signal.SIGCONT)

    assert loop.time() - began < 2
    assert document["models"]["churn"]["policy"]["challenger_weight"] == 9


@pytest.mark.alone
async def test_reading_everything_does_not_rely_on_a_connection_that_may_be_dead(source, database):
    loop = asyncio.get_running_loop()
    await source.load()
    frozen = await database.fetchval(_PID, "understudy-policies")
    os.kill(frozen, signal.SIGSTOP)
    began = loop.time()
    try:
        document = await source.load()
    finally:
        os.kill(frozen, signal.SIGCONT)

    assert loop.time() - began < 0.9
    assert document["models"].keys() == {"churn", "fraud"}


_PID = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND datname = current_database()"


async def _connections(database: asyncpg.Connection, application_name: str) -> int:
    return len(await database.fetch(_PID, application_name))


async def _until(count: Callable[[], Awaitable[int]], wanted: int) -> None:
    async with asyncio.timeout(ENOUGH_SECONDS):
        while await count() != wanted:  # noqa: ASYNC110 - Postgres announces none of it
            await asyncio.sleep(0.01)


@pytest.mark.alone
async def test_a_listener_whose_server_freezes_says_so_within_two_heartbeats(short_path: Path):
    put_new_cluster(short_path / "pg")
    with EmbeddedPostgres(short_path / "pg") as server:
        source = PostgresPolicySource(server.url, timeout_seconds=1, heartbeat_seconds=0.3)
        loop = asyncio.get_running_loop()
        async with listening(source) as (_, listener):
            frozen = await _backends_of(server)
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)
            stopped_at = loop.time()
            try:
                with pytest.raises(RegistryUnavailable):
                    await asyncio.wait_for(listener, 5)
                heard_after = loop.time() - stopped_at
                with pytest.raises(RegistryUnavailable):
                    await source.load()
            finally:
                for pid in frozen:
                    os.kill(pid, signal.SIGCONT)
        await source.close()

    assert heard_after < 1.5


async def _backends_of(server: EmbeddedPostgres) -> list[int]:
    """The listening backend and the postmaster, which then opens no new one."""
    connection = await asyncpg.connect(server.url)
    pid = await connection.fetchval("SELECT pid FROM pg_stat_activity WHERE application_name = 'understudy-listener'")
    connection.terminate()
    assert server.pid is not None
    return [server.pid, pid]


async def test_a_killed_postgres_is_read_again_once_it_is_back(short_path: Path):
    put_new_cluster(short_path / "pg")
    with EmbeddedPostgres(short_path / "pg") as server:
        source = PostgresPolicySource(server.url, timeout_seconds=2)
        with pytest.raises(MigrationNeeded):
            await source.load()
        server.kill()
        with pytest.raises(RegistryUnavailable):
            await source.load()

        server.start()

        with pytest.raises(MigrationNeeded, match="servingpolicy"):
            await source.load()
        await source.close()
