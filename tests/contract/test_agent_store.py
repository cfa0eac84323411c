"""What every ``AgentStore`` does: the twin, and the tables in Postgres."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import asyncpg
import pytest

from understudy.adapters.memory.agent_store import MemoryAgentStore
from understudy.adapters.postgres.loading.agent_store import PostgresAgentStore
from understudy.adapters.postgres.monitoring.lease import PostgresLease, agent_of
from understudy.core.loading.state import MAX_COUNTED, LoadingState
from understudy.core.loading.wanted import Why
from understudy.errors import ArtifactDiffers, LeadershipLost, PolicyRefused
from understudy.ports.loading.agent_store import AgentStore, ServerReport, ValidationResult, VersionAtServer
from understudy.ports.monitoring.lease import Epoch

SERVER = ServerReport("onnx-0", "onnx", "10.0.0.7:8500", "understudy 1", "")
DIGEST, OTHER = "sha256:" + "ab" * 32, "sha256:" + "cd" * 32


@dataclass
class World:
    """A store, the id of a registered version, and the means to change what others write."""

    store: AgentStore
    version_id: int
    epoch: Epoch
    place: Callable[[Why | None], Awaitable[object]]
    give_role: Callable[[], Awaitable[object]]
    forbid_address: Callable[[], Awaitable[object]]
    ask_again: Callable[[], Awaitable[object]]
    require_validation: Callable[[], Awaitable[object]]
    validation: Callable[[], Awaitable[ValidationResult | None]]
    rest: Callable[[], Awaitable[object]]
    wait: Callable[[float], Awaitable[object]]
    neighbour: Callable[[str], Awaitable[object]]
    """Put another server into the group: ``without`` the model, ``with`` the version, or ``silent`` with it."""

    async def seen(self) -> VersionAtServer | None:
        found = [one for one in await self.store.look(SERVER, self.epoch) if one.version_id == self.version_id]
        return found[0] if found else None

    async def record(self) -> Any:
        seen = await self.seen()
        return None if seen is None else seen.record

    async def make_available(self) -> None:
        await self.place(Why.ASKED)
        await self.seen()
        await self.store.write(self.version_id, LoadingState.LOADING, self.epoch, attempt=1, digest=DIGEST)
        await self.store.announce(self.version_id, self.epoch)


async def memory_world() -> World:
    store = MemoryAgentStore(asyncio.get_running_loop().time)
    store.register(7, "visits", "1", "visits/1")

    async def place(why: Why | None) -> None:
        store.place(7, why)

    async def give_role() -> None:
        store.place(7, Why.CHAMPION, has_role=True)

    async def forbid_address() -> None:
        store.refuses_endpoints = True

    async def ask_again() -> None:
        store.ask_again(7)

    async def require_validation() -> None:
        store.require_validation(7)

    async def validation() -> ValidationResult | None:
        return store.validation_of(7)

    async def rest() -> None:
        store.rest(7)

    async def wait(seconds: float) -> None:
        store.place_earlier(7, seconds)

    async def neighbour(state: str) -> None:
        store.others_serve = state != "without"
        store.put_elsewhere(7, is_there=state == "with")

    people = (place, give_role, forbid_address, ask_again, require_validation)
    return World(store, 7, 1, *people, validation, rest, wait, neighbour)


async def postgres_world(database_url: str, database: asyncpg.Connection) -> World:
    store = PostgresAgentStore(database_url, SERVER.name, timeout_seconds=10)
    lease = PostgresLease(database_url, timeout_seconds=10, row=agent_of(SERVER.name))
    epoch = await lease.take_or_renew("a:1:x")
    await lease.close()
    assert epoch is not None
    version_id = await database.fetchval(
        "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, timeout_ms)"
        " VALUES ('visits', '1', 'visits/1', 'onnx', '{}', 1000) RETURNING id"
    )
    await database.execute(
        "INSERT INTO VersionLoading (model_version_id, group_name, asked_at) VALUES ($1, 'onnx', 'epoch')", version_id
    )

    async def place(why: Why | None) -> None:
        await store.look(SERVER, epoch)
        if why is None:
            await database.execute("DELETE FROM Placement")
        else:
            insert = "INSERT INTO Placement (model_version_id, server, why, epoch) VALUES ($1, $2, $3, 1)"
            await database.execute(insert, version_id, SERVER.name, why)

    async def give_role() -> None:
        insert = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)"
        await database.execute(insert, version_id)

    async def forbid_address() -> None:
        await database.execute("UPDATE ModelServer SET target = '169.254.169.254:80'")

    async def ask_again() -> None:
        await database.execute("UPDATE VersionLoading SET asked_at = clock_timestamp()")

    async def require_validation() -> None:
        await database.execute("UPDATE VersionLoading SET requires_validation = TRUE")

    async def validation() -> ValidationResult | None:
        row = await database.fetchrow("SELECT build, artifact_digest, passed, said FROM VersionValidation")
        return None if row is None else ValidationResult(*row)

    async def rest() -> None:
        await database.execute("UPDATE Placement SET idle_since = now()")

    async def wait(seconds: float) -> None:
        await database.execute("UPDATE Placement SET decided_at = now() - make_interval(secs => $1)", seconds)

    people = (place, give_role, forbid_address, ask_again, require_validation)
    neighbour = partial(put_neighbour, database, version_id)
    return World(store, version_id, epoch, *people, validation, rest, wait, neighbour)


async def put_neighbour(database: asyncpg.Connection, version_id: int, state: str) -> None:
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target, seen_at) VALUES ('onnx-1', 'onnx', '10.0.0.8:8500',"
        " now() - make_interval(secs => $1)) ON CONFLICT (name) DO UPDATE SET seen_at = excluded.seen_at",
        3_600.0 if state == "silent" else 0.0,
    )
    await database.execute("DELETE FROM ModelEndpoint WHERE server = 'onnx-1'")
    if state != "without":
        await database.execute(
            "INSERT INTO ModelEndpoint (model_version_id, target, source, server)"
            " VALUES ($1, '10.0.0.8:8500', 'agent', 'onnx-1')",
            version_id,
        )


@pytest.fixture(params=["twin", "postgres"])
def postgres(request: pytest.FixtureRequest) -> tuple[str, asyncpg.Connection] | None:
    """Where the real records are; ``None`` for the twin. Not async, because it starts async fixtures."""
    if request.param == "twin":
        return None
    return request.getfixturevalue("database_url"), request.getfixturevalue("database")


@pytest.fixture
async def world(postgres: tuple[str, asyncpg.Connection] | None) -> AsyncIterator[World]:
    opened = await (memory_world() if postgres is None else postgres_world(*postgres))
    yield opened
    await opened.store.close()


async def test_a_version_is_seen_with_its_placement_and_its_record_and_not_without_both(world):
    assert await world.seen() is None

    await world.place(Why.CHALLENGER)
    seen = await world.seen()

    assert seen is not None
    assert (seen.model_name, seen.version, seen.artifact_uri, seen.why) == (
        "visits",
        "1",
        "visits/1",
        Why.CHALLENGER,
    )
    assert (seen.expected_digest, seen.timeout_seconds, seen.has_endpoint, seen.record) == (None, 1.0, False, None)


async def test_a_state_is_recorded_with_its_attempt_and_digest(world):
    await world.place(Why.ASKED)
    await world.seen()

    await world.store.write(world.version_id, LoadingState.LOADING, world.epoch, attempt=2, digest=DIGEST)

    record = await world.record()
    assert (record.state, record.attempt, record.digest) == (LoadingState.LOADING, 2, DIGEST)
    assert not record.may_retry


async def test_a_version_becomes_available_together_with_its_endpoint(world):
    await world.make_available()

    seen = await world.seen()
    assert seen.has_endpoint
    assert seen.record.state is LoadingState.AVAILABLE
    assert seen.record.digest == DIGEST


async def test_a_version_at_an_address_that_no_server_may_have_does_not_become_available(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.LOADING, world.epoch, attempt=1, digest=DIGEST)
    await world.forbid_address()

    with pytest.raises(PolicyRefused) as refused:
        await world.store.announce(world.version_id, world.epoch)

    assert refused.value.code == "E203"
    assert (await world.record()).state is LoadingState.LOADING


async def test_a_version_that_is_wanted_no_more_does_not_become_available_and_is_no_failure(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.LOADING, world.epoch, attempt=1, digest=DIGEST)
    await world.place(None)

    assert not await world.store.announce(world.version_id, world.epoch)

    seen = await world.seen()
    assert not seen.has_endpoint
    assert seen.record.state is LoadingState.LOADING


async def test_a_withdrawn_version_has_no_endpoint_and_its_record_stays_without_a_placement(world):
    await world.make_available()
    await world.place(None)

    assert await world.store.withdraw(world.version_id, LoadingState.QUIESCING, world.epoch)

    seen = await world.seen()
    assert (seen.why, seen.has_endpoint, seen.record.state) == (None, False, LoadingState.QUIESCING)
    assert seen.record.unread_proxies == 0


async def test_the_last_endpoint_of_a_version_with_a_role_stays_and_the_version_goes_on(world):
    await world.make_available()
    await world.give_role()

    assert not await world.store.withdraw(world.version_id, LoadingState.QUIESCING, world.epoch)
    seen = await world.seen()
    assert (seen.has_endpoint, seen.record.state) == (True, LoadingState.AVAILABLE)

    assert not await world.store.withdraw(world.version_id, LoadingState.FETCHING, world.epoch)
    seen = await world.seen()
    assert (seen.has_endpoint, seen.record.state) == (True, LoadingState.FETCHING)


async def test_a_failure_is_tried_again_when_its_time_has_come_and_never_without_one(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.FETCHING, world.epoch, attempt=1)

    await world.store.fail(world.version_id, "E213", "gone", world.epoch, attempt=1, retry_seconds=0)
    record = await world.record()
    assert (record.state, record.attempt, record.may_retry) == (LoadingState.ERROR, 1, True)
    await world.store.fail(world.version_id, "E212", "another", world.epoch, attempt=2, retry_seconds=None)

    record = await world.record()
    assert (record.attempt, record.may_retry) == (2, False)


async def test_a_failure_may_name_a_file_whose_name_is_no_text(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.FETCHING, world.epoch, attempt=MAX_COUNTED)

    await world.store.fail(
        world.version_id, "E213", "a\0b holds \udcff", world.epoch, attempt=MAX_COUNTED, retry_seconds=None
    )

    assert (await world.record()).state is LoadingState.ERROR


async def test_a_person_who_asks_again_begins_with_the_first_attempt(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.FETCHING, world.epoch, attempt=5)
    await world.store.fail(world.version_id, "E217", "broken", world.epoch, attempt=5, retry_seconds=None)

    await world.ask_again()

    record = await world.record()
    assert (record.attempt, record.may_retry) == (0, True)


async def test_the_first_digest_is_kept_and_another_one_refused(world):
    await world.place(Why.ASKED)
    for _ in range(2):
        await world.store.pin(world.version_id, DIGEST, world.epoch)

    with pytest.raises(ArtifactDiffers, match=DIGEST):
        await world.store.pin(world.version_id, OTHER, world.epoch)

    assert (await world.seen()).expected_digest == DIGEST


async def test_a_forgotten_version_is_seen_no_more(world):
    await world.place(Why.ASKED)
    await world.seen()
    await world.store.write(world.version_id, LoadingState.END, world.epoch)
    await world.place(None)

    await world.store.forget(world.version_id, world.epoch)

    assert await world.seen() is None


async def test_an_agent_of_another_epoch_writes_nothing(world):
    await world.make_available()
    late = world.epoch + 1

    for write in (
        world.store.look(SERVER, late),
        world.store.write(world.version_id, LoadingState.END, late),
        world.store.fail(world.version_id, "E217", "", late, attempt=1, retry_seconds=1),
        world.store.pin(world.version_id, OTHER, late),
        world.store.announce(world.version_id, late),
        world.store.withdraw(world.version_id, LoadingState.QUIESCING, late),
        world.store.forget(world.version_id, late),
    ):
        with pytest.raises(LeadershipLost):
            await write

    assert (await world.seen()).record.state is LoadingState.AVAILABLE


async def test_a_placement_is_heard(world):
    heard = asyncio.Event()
    listening = asyncio.create_task(world.store.listen(heard.set))
    await asyncio.wait_for(heard.wait(), 30)  # the subscription stands
    heard.clear()

    await world.place(Why.CHAMPION)
    await asyncio.wait_for(heard.wait(), 30)

    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


async def test_the_newest_validation_is_kept_and_a_version_says_whether_it_requires_one(world):
    await world.place(Why.ASKED)
    before = await world.seen()
    await world.require_validation()
    after = await world.seen()
    assert (before.requires_validation, after.requires_validation) == (False, True)

    await world.store.record_validation(
        world.version_id, ValidationResult("understudy 1", DIGEST, passed=False, said="case 1: no"), world.epoch
    )
    newest = ValidationResult("understudy 2", OTHER, passed=True, said="1 case answered as expected")
    await world.store.record_validation(world.version_id, newest, world.epoch)

    assert await world.validation() == newest
    with pytest.raises(LeadershipLost):
        await world.store.record_validation(world.version_id, newest._replace(said="late"), world.epoch + 1)
    assert await world.validation() == newest


async def test_what_a_version_takes_of_memory_is_kept_with_its_record(world):
    await world.make_available()
    assert (await world.record()).memory_bytes is None

    await world.store.note_memory(world.version_id, 220_000_000, world.epoch)
    await world.store.withdraw(world.version_id, LoadingState.QUIESCING, world.epoch)
    await world.store.write(world.version_id, LoadingState.LOADING, world.epoch, attempt=1, digest=DIGEST)

    assert (await world.record()).memory_bytes == 220_000_000
    with pytest.raises(LeadershipLost):
        await world.store.note_memory(world.version_id, 1, world.epoch + 1)


async def test_an_idle_version_is_seen_as_such_until_it_is_wanted_again(world):
    await world.make_available()
    wanted = await world.seen()

    await world.rest()
    idle = await world.seen()

    assert (wanted.is_wanted, wanted.idle_seconds) == (True, None)
    assert (idle.is_wanted, idle.why) == (False, Why.ASKED)
    assert idle.idle_seconds >= 0


async def test_a_version_that_another_server_has_which_answers_is_seen_to_be_elsewhere(world):
    await world.make_available()
    seen = {}
    for state in ("without", "with", "silent"):
        await world.neighbour(state)
        seen[state] = (await world.seen()).is_elsewhere

    assert seen == {"without": False, "with": True, "silent": False}


async def test_a_server_gives_a_version_up_in_its_turn_while_no_other_one_is_without_its_model(world):
    await world.make_available()

    await world.neighbour("without")
    early = await world.store.withdraw(world.version_id, LoadingState.QUIESCING, world.epoch, in_turn=True)
    kept = await world.record()
    await world.neighbour("with")
    in_turn = await world.store.withdraw(world.version_id, LoadingState.QUIESCING, world.epoch, in_turn=True)

    assert (early, kept.state) == (False, LoadingState.AVAILABLE)
    assert in_turn
    assert (await world.record()).state is LoadingState.QUIESCING


async def test_a_champion_before_has_had_its_time_after_half_an_hour_and_no_other_version_ever_has(world):
    await world.place(Why.PREVIOUS_CHAMPION)
    young = (await world.seen()).has_had_its_time
    await world.wait(1_900.0)
    old = (await world.seen()).has_had_its_time
    await world.place(None)
    await world.place(Why.CHAMPION)
    await world.wait(1_900.0)

    assert (young, old) == (False, True)
    assert not (await world.seen()).has_had_its_time
