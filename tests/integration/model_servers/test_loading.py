"""Loading in Postgres: what is wanted by the tables, which proxies an unload waits for, and what people ask for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import asyncpg
import pytest

from understudy.adapters.postgres.loading.agent_store import PostgresAgentStore
from understudy.adapters.postgres.loading.placements import PostgresPlacementStore
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.adapters.postgres.monitoring.lease import FENCE_SECONDS, PostgresLease, agent_of
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.replicas import EVERY_SERVER, Replicas
from understudy.core.loading.served_name import served_name
from understudy.core.loading.state import LoadingState
from understudy.core.loading.wanted import GroupMember, Why
from understudy.errors import (
    LeadershipLost,
    LoginNotAllowed,
    MigrationNeeded,
    NotRegistered,
    PolicyRefused,
    RegistryUnavailable,
    ServerTaken,
)
from understudy.ports.loading.agent_store import ServerReport, VersionAtServer
from understudy.ports.loading.loading_registry import VersionLoadingRecord
from understudy.ports.registry.registry import Actor, NewVersion

ACTOR = Actor("dana", "cli")
SCHEMA = {"features": [{"name": "age", "dtype": "float32"}]}
SERVER = ServerReport("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "")
Login = Callable[..., Awaitable[str]]


@pytest.fixture
async def login(database: asyncpg.Connection, database_url: str) -> AsyncIterator[Login]:
    """Makes a login that has these roles and nothing else, and returns its URL."""
    made = []

    async def make(*roles: str) -> str:
        made.append(f"test_{uuid4().hex[:12]}")
        await database.execute(f"CREATE ROLE {made[-1]} LOGIN PASSWORD 'secret' IN ROLE {', '.join(roles)}")
        return f"postgresql://{made[-1]}:secret@{database_url.rpartition('@')[2]}"

    yield make
    for name in made:
        await database.execute(f"DROP ROLE {name}")


async def register(database_url: str, label: str, group_name: str | None = "onnx") -> int:
    backend = {"model_name": served_name("visits", label)}
    new = NewVersion("visits", label, f"visits/{label}", "onnx", SCHEMA, backend=backend, group_name=group_name)
    return (await PostgresRegistry(database_url).add_version(new, ACTOR)).id


async def leader(database_url: str) -> int:
    lease = PostgresLease(database_url, timeout_seconds=10)
    epoch = await lease.take_or_renew("a:1:x")
    await lease.close()
    assert epoch is not None
    return epoch


@pytest.fixture
async def placements(database_url: str) -> AsyncIterator[PostgresPlacementStore]:
    store = PostgresPlacementStore(database_url, timeout_seconds=10)
    yield store
    await store.close()


class AtServer:
    """The agent's records under a login, its epoch, and the owner's connection for what the monitor decides."""

    def __init__(self, store: PostgresAgentStore, epoch: int, database: asyncpg.Connection) -> None:
        self.store = store
        self.epoch = epoch
        self._database = database

    async def seen(self, server: ServerReport = SERVER) -> list[VersionAtServer]:
        return list(await self.store.look(server, self.epoch))

    async def place(self, version_id: int, server: str = SERVER.name) -> None:
        await self._database.execute(
            "INSERT INTO Placement (model_version_id, server, why, epoch) VALUES ($1, $2, 'asked for', 1)",
            version_id,
            server,
        )

    async def make_available(self, version_id: int) -> None:
        await self.seen()
        await self.place(version_id)
        await self.store.write(version_id, LoadingState.LOADING, self.epoch)
        assert await self.store.announce(version_id, self.epoch)


@pytest.fixture
async def agent(database: asyncpg.Connection, login: Login) -> AsyncIterator[AtServer]:
    """An agent under a login with its role and nothing else."""
    url = await login("understudy_agent")
    lease = PostgresLease(url, timeout_seconds=10, row=agent_of(SERVER.name))
    epoch = await lease.take_or_renew("a:1:x")
    await lease.close()
    assert epoch is not None
    store = PostgresAgentStore(url, SERVER.name, timeout_seconds=10)
    yield AtServer(store, epoch, database)
    await store.close()


async def reasons(placements: PostgresPlacementStore, version_id: int) -> set[Why]:
    return set(next(one.reasons for one in (await placements.read()).versions if one.version_id == version_id))


async def test_every_way_of_being_needed_is_a_reason_to_be_loaded(database, database_url, placements):
    ids = [await register(database_url, label) for label in "12345"]
    await database.execute("UPDATE VersionLoading SET wanted_until = NULL")
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'a:1' FROM ModelVersion")
    assert [await reasons(placements, one) for one in ids] == [set()] * 5

    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", ids[0])
    await database.execute(
        "UPDATE ServingPolicy SET champion_version = $1, challenger_version = $2, challenger_weight = 5,"
        " shadow_version = $3, arms = jsonb_build_array(jsonb_build_object('version_id', $4::bigint, 'first', 50,"
        " 'last', 54))",
        ids[1],
        ids[2],
        ids[3],
        ids[4],
    )
    found = [await reasons(placements, one) for one in ids]

    assert found[0] == {Why.PREVIOUS_CHAMPION}
    # The split has a guard: both sides of it have a part in what the monitor judges.
    assert Why.CHAMPION in found[1]
    assert Why.CHALLENGER in found[2]
    assert found[3] == {Why.SHADOW}
    assert Why.ARM in found[4]


async def test_a_registered_version_is_wanted_for_two_hours_and_a_retired_one_no_more(
    database, database_url, placements
):
    version_id = await register(database_url, "1")
    assert await reasons(placements, version_id) == {Why.ASKED}

    await database.execute("UPDATE ModelVersion SET status = 'retired'")
    assert await reasons(placements, version_id) == set()
    await database.execute("UPDATE ModelVersion SET status = 'staging'")
    await database.execute("UPDATE VersionLoading SET wanted_until = wanted_until - INTERVAL '2 hours 1 second'")

    assert await reasons(placements, version_id) == set()


async def test_a_decision_is_read_back_by_monitor_and_agent_and_a_late_leader_writes_none(
    database_url, placements, agent
):
    version_id, unmanaged = await register(database_url, "1"), await register(database_url, "2", None)
    await agent.seen()
    epoch = await leader(database_url)

    await placements.decide({(version_id, SERVER.name): Why.ASKED, (unmanaged, SERVER.name): Why.ASKED}, [], epoch)
    facts = await placements.read()

    assert facts.placed == {(version_id, SERVER.name): Why.ASKED}
    assert facts.servers == [GroupMember("onnx-0", "onnx")]
    assert [(one.version, one.why) for one in await agent.seen()] == [("1", Why.ASKED)]
    with pytest.raises(LeadershipLost):
        await placements.decide({}, facts.placed, epoch + 1)
    await placements.decide({}, facts.placed, epoch)
    assert await agent.seen() == []


@pytest.mark.parametrize(
    ("report", "unread"),
    [
        ("removed_at, NULL", 1),
        ("removed_at, removed_xid", 1),
        ("removed_at - INTERVAL '20 seconds', '1'", 1),
        ("removed_at, (removed_xid::text::bigint + 1)::text::xid8", 0),
        ("removed_at - INTERVAL '40 seconds', '1'", 0),
    ],
    ids=["older release", "not quite", "stale since", "read", "stale before"],
)
async def test_an_unload_waits_for_proxies_that_were_live_and_have_not_read_the_removal(
    database, database_url, agent, report, unread
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    assert await agent.store.withdraw(version_id, LoadingState.QUIESCING, agent.epoch)

    await database.execute(
        f"INSERT INTO ProxyInstance (instance, seen_at, read_xid) SELECT 'web-1:7', {report} FROM LoadedVersion"
    )
    (seen,) = await agent.seen()

    assert seen.record is not None
    assert seen.record.unread_proxies == unread
    # What a proxy of an older release has read is not known: it is not waited for without end.
    assert seen.record.reporting_proxies == (0 if report == "removed_at, NULL" else unread)


@pytest.mark.parametrize(
    ("reports", "are_over"),
    [
        ([], False),
        (["1, '{\"%d\": 0}'"], True),
        (["1, '{\"%d\": 2}'"], False),
        (["1, '{}'"], False),
        (["0, '{\"%d\": 0}'"], False),
        (["1, '{\"%d\": 0}'", "1, '{\"%d\": 1}'"], False),
        (["1, '{\"%d\": 0}'", "1, '{\"%d\": 0}'"], True),
    ],
    ids=["no proxy", "none", "some", "older release", "not read", "one of two", "both"],
)
async def test_the_calls_to_a_removed_endpoint_are_over_once_each_proxy_that_has_read_that_says_so(
    database, database_url, agent, reports, are_over
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    assert await agent.store.withdraw(version_id, LoadingState.QUIESCING, agent.epoch)

    for number, report in enumerate(reports):
        read, in_flight = report.replace("%d", str(version_id)).split(", ", 1)
        await database.execute(
            "INSERT INTO ProxyInstance (instance, seen_at, read_xid, in_flight)"
            f" SELECT 'web-{number}:7', removed_at, (removed_xid::text::bigint + {read})::text::xid8, {in_flight}"
            " FROM LoadedVersion"
        )
    (seen,) = await agent.seen()

    assert seen.record is not None
    assert seen.record.calls_are_over is are_over


async def test_while_a_session_keeps_the_reports_of_proxies_locked_no_version_is_taken_for_quiet_and_rounds_go_on(
    database, database_url, agent
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await agent.store.withdraw(version_id, LoadingState.QUIESCING, agent.epoch)

    async with database.transaction():
        await database.execute("LOCK TABLE ProxyInstance")
        (seen,) = await agent.seen()

    assert seen.record is not None
    assert (seen.record.unread_proxies, seen.record.calls_are_over) == (1, False)


OF_AGENT = """
    SELECT {} FROM pg_stat_activity WHERE application_name = 'understudy-agent' AND datname = current_database()
"""


async def test_a_round_of_an_agent_at_rest_is_one_statement_without_a_transaction(database, database_url, agent):
    await agent.make_available(await register(database_url, "1"))

    await agent.seen()

    ((state, query),) = await database.fetch(OF_AGENT.format("state, query"))
    assert (state, query.split()[:3]) == ("idle", ["WITH", "fence", "AS"])


@pytest.mark.timed
async def test_a_round_that_waits_for_another_lock_keeps_the_next_agent_out_for_two_seconds_at_most(
    database, database_url, agent
):
    await agent.seen()
    lease = PostgresLease(database_url, timeout_seconds=10, row=agent_of(SERVER.name))
    locking = await asyncpg.connect(database_url)
    try:
        async with locking.transaction():
            await locking.execute("SELECT FROM ModelServer FOR UPDATE")
            waiting = asyncio.create_task(agent.seen())
            while await database.fetchval(OF_AGENT.format("wait_event_type")) != "Lock":  # noqa: ASYNC110 - another session
                await asyncio.sleep(0.01)
            await database.execute("UPDATE AgentLease SET renewed_at = 'epoch'")

            async with asyncio.timeout(2 * FENCE_SECONDS):
                assert await lease.take_or_renew("b:1:y") == agent.epoch + 1
            with pytest.raises(RegistryUnavailable, match="lock timeout"):
                await waiting
    finally:
        await locking.close()
        await lease.close()


async def test_a_server_that_comes_back_under_another_address_has_its_endpoints_there_alone(
    database, database_url, agent
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    moved = SERVER._replace(target="10.0.0.8:8500")

    (seen,) = await agent.seen(moved)
    assert not seen.has_endpoint
    await agent.store.announce(version_id, agent.epoch)

    rows = await database.fetch("SELECT target, source, server FROM ModelEndpoint")
    assert [tuple(row) for row in rows] == [("10.0.0.8:8500", "agent", "onnx-0")]


async def test_an_endpoint_that_people_registered_at_the_same_address_stays_theirs(database, database_url, agent):
    version_id = await register(database_url, "1")
    await database.execute(
        "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", version_id, SERVER.target
    )
    await agent.make_available(version_id)

    assert not await agent.store.withdraw(version_id, LoadingState.QUIESCING, agent.epoch)

    assert await database.fetchval("SELECT source FROM ModelEndpoint") == "manual"


async def test_a_server_that_was_renamed_sees_what_it_serves_and_takes_its_endpoints_over(
    database, database_url, agent, login
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version_id)
    renamed = SERVER._replace(name="onnx-a")
    url = await login("understudy_agent")
    lease = PostgresLease(url, timeout_seconds=10, row=agent_of(renamed.name))
    epoch = await lease.take_or_renew("b:1:y")
    await lease.close()
    assert epoch is not None
    successor = AtServer(PostgresAgentStore(url, renamed.name, timeout_seconds=10), epoch, database)
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '31 seconds'")

    (seen,) = await successor.seen(renamed)
    assert (seen.why, seen.record, seen.has_endpoint, seen.owns_endpoint) == (None, None, True, False)
    await successor.place(version_id, renamed.name)
    await successor.store.write(version_id, LoadingState.LOADING, epoch)
    await successor.store.announce(version_id, epoch)
    (seen,) = await successor.seen(renamed)
    await successor.store.close()

    assert seen.owns_endpoint
    rows = await database.fetch("SELECT target, source, server FROM ModelEndpoint")
    assert [tuple(row) for row in rows] == [(SERVER.target, "agent", "onnx-a")]


@pytest.mark.parametrize("left", ["nothing", "it is to have the version"])
async def test_what_a_server_is_left_with_of_a_former_name_is_unloaded_once_that_is_silent_and_wants_nothing(
    database, database_url, agent, login, left
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    renamed = SERVER._replace(name="onnx-a")
    url = await login("understudy_agent")
    lease = PostgresLease(url, timeout_seconds=10, row=agent_of(renamed.name))
    epoch = await lease.take_or_renew("b:1:y")
    await lease.close()
    assert epoch is not None
    successor = AtServer(PostgresAgentStore(url, renamed.name, timeout_seconds=10), epoch, database)
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '31 seconds'")
    if left != "it is to have the version":
        await database.execute("DELETE FROM Placement")

    (at_first,) = await successor.seen(renamed)
    (seen,) = await successor.seen(renamed)
    is_gone = await successor.store.withdraw(version_id, LoadingState.QUIESCING, epoch)
    await successor.store.close()

    assert seen.has_endpoint
    assert not at_first.owns_endpoint  # it is people's, as far as that round knows, and stays
    assert (seen.owns_endpoint, is_gone) == ((True, True) if left == "nothing" else (False, False))


async def test_what_a_server_has_is_seen_after_the_migration_was_taken_back_and_made_again(
    database, database_url, agent
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)

    # What 0028_down.sql leaves of agents' endpoints, and of what was wanted.
    await database.execute("UPDATE ModelEndpoint SET source = 'manual', server = NULL")
    await database.execute("DELETE FROM VersionLoading")
    await database.execute("DELETE FROM LoadedVersion")

    (seen,) = await agent.seen()
    assert (seen.version_id, seen.why, seen.has_endpoint, seen.owns_endpoint) == (version_id, None, True, False)


async def test_an_agent_adds_no_endpoint_for_a_version_that_is_not_placed_on_its_server(
    database, database_url, login, agent
):
    placed, other = await register(database_url, "1"), await register(database_url, "2")
    await agent.seen()
    await agent.place(placed)
    await agent.store.write(other, LoadingState.LOADING, agent.epoch)
    connection = await asyncpg.connect(await login("understudy_agent"))

    for version_id, server in ((other, SERVER.name), (placed, "onnx-9"), (None, SERVER.name)):
        with pytest.raises(asyncpg.CheckViolationError, match="is not placed on server"):
            await connection.execute("SELECT understudy_add_agent_endpoint($1, $2)", version_id, server)
    assert not await agent.store.announce(other, agent.epoch)
    await connection.execute("SELECT understudy_add_agent_endpoint($1, $2)", placed, SERVER.name)
    await connection.close()

    states = {one.version_id: one.record and one.record.state for one in await agent.seen()}
    assert states == {placed: None, other: LoadingState.LOADING}
    assert [row[0] for row in await database.fetch("SELECT model_version_id FROM ModelEndpoint")] == [placed]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'evil:1' FROM ModelVersion",
        "DELETE FROM ModelEndpoint",
        "UPDATE ModelEndpoint SET target = 'evil:1'",
        "UPDATE ModelVersion SET artifact_path = '/etc/passwd'",
        "UPDATE VersionLoading SET group_name = 'other'",
        "INSERT INTO Placement (model_version_id, server, why, epoch) VALUES (1, 'onnx-0', 'champion', 1)",
        "UPDATE ServingPolicy SET challenger_weight = 0",
        "UPDATE MonitorLease SET epoch = epoch + 1",
        "DELETE FROM ModelServer",
        "SELECT * FROM PredictionLog",
        "SELECT * FROM ApiKey",
        "SELECT understudy_drop_silent_servers()",
    ],
)
async def test_a_login_of_an_agent_may_do_nothing_else(database_url, login, agent, statement):
    await register(database_url, "1")
    connection = await asyncpg.connect(await login("understudy_agent"))

    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.execute(statement)
    await connection.close()


async def test_an_agent_reads_how_a_version_is_called_to_ask_it_its_cases(database_url, login):
    await register(database_url, "1")

    found = await PostgresRegistry(await login("understudy_agent")).show_version("visits", "1")

    assert found.input_schema == SCHEMA


async def test_a_digest_that_was_pinned_is_replaced_by_no_other(database, database_url, agent):
    version_id = await register(database_url, "1")
    await agent.seen()
    await agent.store.pin(version_id, "sha256:" + "ab" * 32, agent.epoch)

    with pytest.raises(asyncpg.CheckViolationError):
        await database.execute("UPDATE VersionLoading SET pinned_digest = $1", "sha256:" + "cd" * 32)


async def test_silent_servers_lose_the_endpoints_that_others_stand_in_for_and_keep_the_rest(
    database, database_url, placements, agent
):
    ids = [await register(database_url, label) for label in "12"]
    for version_id in ids:
        await agent.make_available(version_id)
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'mine:1')", ids[0])
    epoch = await leader(database_url)

    assert await placements.drop_silent_servers(epoch) == []
    assert await database.fetchval("SELECT count(*) FROM ModelEndpoint WHERE source = 'agent'") == 2
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '61 seconds'")
    dropped = await placements.drop_silent_servers(epoch)
    again = await placements.drop_silent_servers(epoch)

    left = await database.fetch("SELECT model_version_id FROM ModelEndpoint WHERE source = 'agent'")
    assert [row[0] for row in left] == [ids[1]]
    assert (dropped, again) == (["onnx-0"], [])


async def test_a_server_is_forgotten_a_day_after_it_was_seen_once_no_endpoint_is_its(
    database, database_url, placements, agent
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    epoch = await leader(database_url)
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '25 hours'")
    await database.execute("UPDATE AgentLease SET renewed_at = now() - INTERVAL '25 hours'")

    await placements.drop_silent_servers(epoch)
    assert await database.fetchval("SELECT count(*) FROM ModelServer") == 1
    await database.execute("DELETE FROM ModelEndpoint")
    await placements.drop_silent_servers(epoch)

    for table in ("ModelServer", "AgentLease", "LoadedVersion"):
        assert await database.fetchval(f"SELECT count(*) FROM {table}") == 0


# -- what people ask for -----------------------------------------------------------------------------------------------


@pytest.fixture
async def loading(login: Login) -> PostgresLoadingRegistry:
    return PostgresLoadingRegistry(await login("understudy_engineer"), timeout_seconds=10)


async def test_a_version_without_a_group_needs_one_and_then_keeps_it(database_url, loading):
    await register(database_url, "1", None)

    with pytest.raises(PolicyRefused, match="no group") as refused:
        await loading.load("visits", "1", ACTOR, group_name=None, seconds=60)
    assert "--group" in refused.value.next_step
    await loading.load("visits", "1", ACTOR, group_name="onnx", seconds=60)
    kept = await loading.load("visits", "1", ACTOR, group_name=None, seconds=None)

    assert (kept.group_name, kept.is_kept, kept.wanted_until) == ("onnx", True, None)


async def test_a_version_that_proxies_call_by_another_name_than_agents_load_it_under_is_refused(
    database, database_url, loading
):
    await register(database_url, "1", None)
    await database.execute("UPDATE ModelVersion SET backend = '{}'")

    with pytest.raises(PolicyRefused, match="proxies call version 1 of visits as visits"):
        await loading.load("visits", "1", ACTOR, group_name="onnx", seconds=60)


async def test_a_dry_run_of_load_and_unload_writes_nothing(database, database_url, loading):
    await register(database_url, "1")
    await database.execute("INSERT INTO ModelServer (name, group_name, target) VALUES ('tf-0', 'other', 'a:1')")
    before = await database.fetch("SELECT * FROM VersionLoading")

    await loading.load("visits", "1", ACTOR, group_name="other", seconds=None, dry_run=True)
    await loading.unload("visits", "1", ACTOR, dry_run=True)

    assert await database.fetch("SELECT * FROM VersionLoading") == before


async def test_a_version_that_is_wanted_is_not_moved_to_a_group_without_servers(
    database, database_url, agent, placements, loading
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version_id)

    with pytest.raises(PolicyRefused, match="wanted as champion, and no agent reports a server of the group onx"):
        await loading.load("visits", "1", ACTOR, group_name="onx", seconds=60)

    assert [one.group_name for one in (await placements.read()).versions] == ["onnx"]
    await database.execute("INSERT INTO ModelServer (name, group_name, target) VALUES ('tf-0', 'tf', 'a:1')")
    assert (await loading.load("visits", "1", ACTOR, group_name="tf", seconds=60)).group_name == "tf"


async def test_the_monitor_reads_which_servers_have_a_version_unless_their_agent_is_silent(
    database, database_url, agent, placements
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)

    assert (await placements.read()).available == {(version_id, SERVER.name)}
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '31 seconds'")
    assert (await placements.read()).available == set()


@pytest.mark.parametrize(
    "no_more",
    [
        "UPDATE VersionLoading SET wanted_until = now()",
        "UPDATE VersionLoading SET wanted_until = NULL",
        "UPDATE VersionLoading SET group_name = 'another'",
        "UPDATE ModelVersion SET status = 'retired'",
    ],
)
async def test_a_version_is_asked_for_until_its_time_ends_or_it_is_unloaded_moved_or_retired(
    database, database_url, agent, no_more
):
    await agent.make_available(await register(database_url, "1"))
    await database.execute("UPDATE VersionLoading SET wanted_until = now() + INTERVAL '1 hour'")
    await database.execute("DELETE FROM Placement")
    deleted = (await agent.seen())[0].is_asked_for

    await database.execute(no_more)

    assert deleted
    assert not (await agent.seen())[0].is_asked_for


async def test_a_champion_before_that_is_asked_for_has_not_had_its_time(database, database_url, agent):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await database.execute("UPDATE Placement SET why = 'previous champion', decided_at = now() - INTERVAL '31 minutes'")
    await database.execute("UPDATE VersionLoading SET wanted_until = 'infinity'")
    asked_for = (await agent.seen())[0].has_had_its_time
    await database.execute("UPDATE VersionLoading SET wanted_until = now()")

    assert not asked_for
    assert (await agent.seen())[0].has_had_its_time


async def test_the_monitor_reads_which_servers_have_no_room_for_a_version(database_url, agent, placements):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)

    await agent.store.fail(version_id, "E217", "no", agent.epoch, attempt=1, retry_seconds=5)
    broken = (await placements.read()).without_room
    await agent.store.fail(version_id, "E214", "it needs more", agent.epoch, attempt=1, retry_seconds=5)

    assert broken == set()
    assert (await placements.read()).without_room == {(version_id, SERVER.name)}


async def test_a_version_with_a_role_is_not_unloaded_and_it_is_said_which(database, database_url, loading):
    version_id = await register(database_url, "1")
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'a:1')", version_id)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version_id)

    with pytest.raises(PolicyRefused, match="wanted as champion"):
        await loading.unload("visits", "1", ACTOR)

    found = await loading.show("visits", "1")
    assert found is not None
    assert found.wanted_until is not None


async def test_what_is_not_there_is_said_to_be_so(database_url, loading):
    await register(database_url, "1", None)

    assert await loading.show("visits", "1") is None
    for call in (loading.unload("visits", "1", ACTOR), loading.show("visits", "9"), loading.show("churn", "1")):
        with pytest.raises(NotRegistered):
            await call


async def test_people_see_where_a_version_is_what_failed_and_which_servers_there_are(
    database, database_url, placements, agent, loading
):
    version_id = await register(database_url, "1")
    await agent.seen()
    await placements.decide({(version_id, SERVER.name): Why.ASKED}, [], await leader(database_url))
    await agent.store.write(version_id, LoadingState.FETCHING, agent.epoch, attempt=1)
    await agent.store.fail(version_id, "E217", "x" * 900, agent.epoch, attempt=1, retry_seconds=None)

    record = await loading.show("visits", "1")
    (server,) = await loading.list_servers()

    assert record is not None
    (there,) = record.servers
    assert there.group_name == "onnx"
    assert (there.server, there.why, there.state, there.attempt, there.error_code, there.will_retry) == (
        "onnx-0",
        "asked for",
        "ERROR",
        1,
        "E217",
        False,
    )
    assert len(there.error or "") == 500
    assert (server.name, server.wanted, server.available, server.failed) == ("onnx-0", 1, 0, 1)
    assert 0 <= server.seen_seconds < 60


async def test_a_reader_asks_for_nothing(database_url, login):
    await register(database_url, "1")
    reader = PostgresLoadingRegistry(await login("understudy_reader"), timeout_seconds=10)

    found = await reader.show("visits", "1")

    assert found is not None
    with pytest.raises(LoginNotAllowed):
        await reader.unload("visits", "1", ACTOR)


async def test_an_agent_on_a_schema_of_before_says_that_a_migration_is_needed(database, agent):
    await database.execute("DROP FUNCTION understudy_left_endpoints(TEXT)")

    with pytest.raises(MigrationNeeded, match="understudy_left_endpoints"):
        await agent.seen()


async def test_a_version_is_idle_since_its_last_call_and_no_more_once_it_is_wanted(
    database, database_url, placements, agent
):
    version_id = await register(database_url, "1")
    place = (version_id, SERVER.name)
    await agent.make_available(version_id)
    epoch = await leader(database_url)
    await placements.decide({}, [], epoch, idle=[place])
    begun = (await placements.read()).idle[place]
    await database.execute("UPDATE Placement SET idle_since = idle_since - INTERVAL '1 hour'")
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,"
        " reason) VALUES ($1, 'c-1', repeat('ab', 32), '{}', 3, now() - INTERVAL '5 minutes', 'forced')",
        version_id,
    )

    called = (await placements.read()).idle[place]
    await placements.decide({}, [], epoch, idle=[place])
    recorded = (await placements.read()).idle[place]
    (seen,) = await agent.seen()
    await placements.decide({place: Why.ASKED}, [], epoch)
    facts = await placements.read()

    assert begun.recorded_seconds < 60
    assert (round(called.recorded_seconds / 60), round(called.unused_seconds / 60)) == (60, 5)
    assert round(recorded.recorded_seconds / 60) == 5
    assert seen.idle_seconds is not None
    assert round(seen.idle_seconds / 60) == 5
    assert facts.idle == {}
    assert [one.may_idle for one in facts.versions] == [True]


async def test_a_version_that_a_person_had_unloaded_or_that_is_retired_does_not_rest(
    database, database_url, placements
):
    for label in "123":
        await register(database_url, label)
    await PostgresLoadingRegistry(database_url, timeout_seconds=10).unload("visits", "1", ACTOR)
    await database.execute("UPDATE ModelVersion SET status = 'retired' WHERE version = '2'")

    versions = (await placements.read()).versions

    assert [one.may_idle for one in sorted(versions, key=lambda one: one.version_id)] == [False, False, True]


async def test_a_server_has_one_agent_and_another_one_waits_until_that_is_silent(database, database_url, agent):
    await agent.seen()
    other = PostgresAgentStore(database_url, "another", timeout_seconds=10)
    lease = PostgresLease(database_url, timeout_seconds=10, row=agent_of("another"))
    epoch = await lease.take_or_renew("b:1:x")
    await lease.close()
    assert epoch is not None
    renamed = SERVER._replace(name="another")

    with pytest.raises(ServerTaken, match="has an agent, which reports it as onnx-0"):
        await other.look(renamed, epoch)
    await agent.seen()  # the one that was there goes on
    listed = await database.fetchval("SELECT count(*) FROM ModelServer")
    await database.execute("UPDATE ModelServer SET seen_at = now() - INTERVAL '31 seconds'")
    await other.look(renamed, epoch)
    with pytest.raises(ServerTaken, match="reports it as another"):
        await agent.seen()
    await other.close()

    assert listed == 1


@pytest.mark.parametrize(
    ("logged", "is_called"),
    [
        ("now() - INTERVAL '14 minutes', 'forced', 'unavailable'", True),
        ("now() - INTERVAL '16 minutes', 'forced', 'unavailable'", False),
        ("now(), 'forced', 'ok'", False),
        ("now(), 'bucket', 'unavailable'", False),
    ],
    ids=["by its name", "too long ago", "answered", "by a bucket"],
)
async def test_a_version_without_an_endpoint_that_was_called_by_its_name_is_known(
    database, database_url, placements, logged, is_called
):
    await register(database_url, "1")
    await database.execute(
        "INSERT INTO PredictionLog (model_version_id, entity_id, input_hash, prediction, latency_ms, predicted_at,"
        f" reason, status) SELECT id, 'c-1', repeat('ab', 32), '{{}}', 3, {logged} FROM ModelVersion"
    )

    (before,) = (await placements.read()).versions
    await database.execute("UPDATE VersionLoading SET wanted_until = NULL")  # a person has it unloaded
    (unloaded,) = (await placements.read()).versions
    await database.execute("UPDATE VersionLoading SET wanted_until = now()")
    await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) SELECT id, 'a:1' FROM ModelVersion")
    (served,) = (await placements.read()).versions

    assert (before.is_called, unloaded.is_called, served.is_called) == (is_called, False, False)


async def test_a_version_is_asked_for_on_some_servers_of_its_group_and_on_all_again(database_url, loading, placements):
    one_to_four, two = Replicas(1, 4), Replicas(2, 2)
    new = NewVersion("visits", "1", "visits/1", "onnx", SCHEMA, backend={"model_name": served_name("visits", "1")})
    await PostgresRegistry(database_url).add_version(new._replace(group_name="onnx", replicas=one_to_four), ACTOR)

    async def asked(replicas: Replicas | None) -> Replicas | None:
        await loading.load("visits", "1", ACTOR, group_name=None, seconds=60, replicas=replicas)
        record: VersionLoadingRecord | None = await loading.show("visits", "1")
        (version,) = (await placements.read()).versions
        assert record is not None
        assert record.replicas == version.replicas
        return record.replicas

    assert [await asked(one) for one in (None, two, None, EVERY_SERVER)] == [one_to_four, two, two, None]


async def test_the_monitor_reads_what_servers_have_room_for_and_what_versions_take_or_were_expected_to(
    database, database_url, agent, placements
):
    version_id = await register(database_url, "1")
    place = (version_id, SERVER.name)
    await database.execute("UPDATE VersionLoading SET replicas_min = 1, replicas_max = 1")
    await agent.seen(SERVER._replace(room_bytes=900, problem="E215 away", is_draining=True))
    await agent.place(version_id)
    await agent.store.write(version_id, LoadingState.LOADING, agent.epoch)

    no_room = {"attempt": 0, "retry_seconds": 5.0, "expected_bytes": 700}
    await agent.store.fail(version_id, "E214", "it needs more", agent.epoch, **no_room)
    expected = await placements.read()
    await agent.store.note_memory(version_id, 600, agent.epoch)
    refused = (await placements.read()).sizes
    await agent.store.write(version_id, LoadingState.LOADING, agent.epoch)
    measured = await placements.read()
    await agent.store.write(version_id, LoadingState.END, agent.epoch)

    assert expected.servers == [GroupMember(SERVER.name, "onnx", answers=False, room_bytes=900, is_draining=True)]
    assert (expected.sizes, refused, measured.sizes) == ({place: 700}, {place: 700}, {place: 600})
    assert measured.lately_removed == set()
    assert (await placements.read()).lately_removed == {version_id}


async def test_of_a_version_for_some_servers_those_are_missing_that_are_to_have_it(
    database, database_url, agent, loading
):
    version_id = await register(database_url, "1")
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target) VALUES ('onnx-1', 'onnx', '10.0.0.8:8500'),"
        " ('onnx-2', 'onnx', '10.0.0.9:8500')"
    )
    await agent.make_available(version_id)
    on_all = await loading.list_missing()
    await loading.load("visits", "1", ACTOR, group_name=None, seconds=60, replicas=Replicas(1, 3))
    on_one = await loading.list_missing()
    await agent.place(version_id, "onnx-1")
    (on_two,) = await loading.list_missing()
    await loading.load("visits", "1", ACTOR, group_name=None, seconds=60, replicas=Replicas(3, 3))
    (on_three,) = await loading.list_missing()

    assert [(one.replicas, len(one.without)) for one in on_all] == [(None, 2)]
    assert on_one == []
    assert (on_two.replicas, on_two.has, on_two.without) == (2, 1, ("onnx-1: nothing has begun",))
    assert (on_three.replicas, on_three.has, on_three.without) == (3, 1, ("onnx-1: nothing has begun",))


async def test_what_a_server_lacks_that_dropped_a_version_or_drains_is_said_in_words_and_not_by_the_state_before(
    database, database_url, agent, loading
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await agent.store.write(version_id, LoadingState.END, agent.epoch)
    (dropped,), (before,) = await loading.list_missing(), await loading.list_servers()
    await agent.seen(SERVER._replace(is_draining=True))
    (drained,), (after,) = await loading.list_missing(), await loading.list_servers()
    # An agent of the release before, which takes the server over, does not know the column.
    await database.execute("UPDATE ModelServer SET seen_at = now() + INTERVAL '1 millisecond'")
    (taken_over,) = await loading.list_servers()

    assert (dropped.without, drained.without) == (("onnx-0: nothing has begun",), ("onnx-0: draining",))
    assert (before.is_draining, after.is_draining, taken_over.is_draining) == (False, True, False)


async def test_a_version_for_some_servers_has_its_turn_whatever_servers_without_its_model_have(
    database, database_url, agent
):
    version_id = await register(database_url, "1")
    await agent.make_available(version_id)
    await database.execute("INSERT INTO ModelServer (name, group_name, target) VALUES ('onnx-1', 'onnx', 'b:1')")

    async def leaves() -> bool:
        store: PostgresAgentStore = agent.store
        return await store.withdraw(version_id, LoadingState.QUIESCING, agent.epoch, in_turn=True)

    on_all = await leaves()
    await database.execute("UPDATE VersionLoading SET replicas_min = 1, replicas_max = 1")
    await agent.place(version_id, "onnx-1")
    while_the_other_is_to_have_it = await leaves()
    await database.execute("DELETE FROM Placement WHERE server = 'onnx-1'")

    assert (on_all, while_the_other_is_to_have_it, await leaves()) == (False, False, True)


@pytest.mark.parametrize("numbers", ["(0, 1)", "(2, 1)", "(1, 65)", "(1, NULL)", "(NULL, 1)"])
async def test_no_other_numbers_of_servers_are_stored(database, database_url, numbers):
    await register(database_url, "1")

    with pytest.raises(asyncpg.CheckViolationError, match="versionloading_replicas"):
        await database.execute(f"UPDATE VersionLoading SET (replicas_min, replicas_max) = {numbers}")
