"""Rows about loading that people write by SQL: none of them stops an agent or the monitor."""

from contract.test_agent_store import postgres_world

from understudy.adapters.postgres.loading.placements import PostgresPlacementStore
from understudy.core.loading.state import MAX_ATTEMPTS, LoadingState
from understudy.core.loading.wanted import Why


async def test_a_placement_whose_reason_is_not_known_is_the_least_urgent_one(database_url, database):
    world = await postgres_world(database_url, database)
    await world.place(Why.CHAMPION)
    await database.execute("UPDATE Placement SET why = 'of a later release'")
    placements = PostgresPlacementStore(database_url, timeout_seconds=10)

    seen = await world.seen()
    assert seen is not None
    assert seen.why is Why.ASKED
    assert [*(await placements.read()).placed.values()] == [Why.ASKED]

    await placements.close()
    await world.store.close()


async def test_a_version_that_was_asked_for_at_a_time_to_come_ends_its_attempts_all_the_same(database_url, database):
    world = await postgres_world(database_url, database)
    await world.place(Why.ASKED)
    await world.store.write(world.version_id, LoadingState.LOADING, world.epoch, attempt=MAX_ATTEMPTS)
    await world.store.fail(world.version_id, "E217", "no", world.epoch, attempt=MAX_ATTEMPTS, retry_seconds=None)
    await database.execute("UPDATE VersionLoading SET asked_at = 'infinity'")

    record = await world.record()

    assert (record.may_retry, record.attempt) == (False, MAX_ATTEMPTS)

    await world.store.close()
