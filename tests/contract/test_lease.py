"""What every ``Lease`` does."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import pytest

from understudy.adapters.memory.lease import MemoryLease
from understudy.adapters.postgres.monitoring.lease import MONITOR, LeaseRow, PostgresLease, agent_of
from understudy.ports.monitoring.lease import LEASE_SECONDS, Epoch, Lease

ONE, OTHER, THIRD = "a:1:x", "b:2:y", "c:3:z"
OVER = LEASE_SECONDS + 0.01


@dataclass(frozen=True)
class Opened:
    """The lease as its holders reach it, and a way to let time pass for it."""

    leases: dict[str, Lease]
    let_pass: Callable[[float], Awaitable[object]]

    async def ask(self, holder: str) -> Epoch | None:
        return await self.leases[holder].take_or_renew(holder)

    async def release(self, holder: str) -> None:
        await self.leases[holder].release(holder)


class Clock:
    """Time that passes when it is told to."""

    seconds = 0.0

    async def let_pass(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture(params=[None, MONITOR, agent_of("server-a")], ids=["twin", "monitor", "agent"])
def row(request: pytest.FixtureRequest) -> LeaseRow | None:
    """The row of the real lease; ``None`` for the twin."""
    found: LeaseRow | None = request.param
    return found


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest, row: LeaseRow | None) -> str | None:
    """Where the real lease is kept; ``None`` for the twin. Not async, because it starts async fixtures."""
    return None if row is None else request.getfixturevalue("database_url")


@pytest.fixture
async def opened(postgres_url: str | None, row: LeaseRow | None) -> AsyncIterator[Opened]:
    holders = (ONE, OTHER, THIRD)
    if postgres_url is None or row is None:
        clock = Clock()
        twin = MemoryLease(lambda: clock.seconds)
        yield Opened(dict.fromkeys(holders, twin), clock.let_pass)
        return
    leases: dict[str, Lease] = {holder: PostgresLease(postgres_url, timeout_seconds=10, row=row) for holder in holders}
    database = await asyncpg.connect(postgres_url, timeout=10, command_timeout=30)
    # The row ages; nobody but Postgres itself moves its clock.
    older = row.sql("UPDATE MonitorLease SET renewed_at = renewed_at - $1 * INTERVAL '1 second'")
    yield Opened(leases, lambda seconds: database.execute(older, seconds))
    for lease in leases.values():
        await lease.close()
    database.terminate()


async def test_the_first_to_ask_leads_and_renews_under_the_same_epoch(opened):
    epoch = await opened.ask(ONE)

    assert epoch is not None
    assert [await opened.ask(ONE) for _ in range(3)] == [epoch] * 3


async def test_no_other_monitor_gets_a_lease_that_is_held(opened):
    await opened.ask(ONE)
    await opened.let_pass(LEASE_SECONDS * 0.8)

    assert await opened.ask(OTHER) is None


async def test_a_renewal_keeps_the_lease_for_its_whole_time_again(opened):
    epoch = await opened.ask(ONE)
    await opened.let_pass(LEASE_SECONDS * 0.8)
    await opened.ask(ONE)
    await opened.let_pass(LEASE_SECONDS * 0.8)

    assert await opened.ask(OTHER) is None
    assert await opened.ask(ONE) == epoch


async def test_asking_in_vain_does_not_keep_the_next_one_out(opened):
    await opened.ask(ONE)
    await opened.let_pass(LEASE_SECONDS * 0.8)
    await opened.ask(OTHER)
    await opened.let_pass(LEASE_SECONDS * 0.8)

    assert await opened.ask(THIRD) is not None


async def test_a_lease_that_is_over_goes_to_the_next_under_a_higher_epoch_and_its_old_holder_is_out(opened):
    first = await opened.ask(ONE)
    await opened.let_pass(OVER)

    second = await opened.ask(OTHER)

    assert second > first
    assert await opened.ask(ONE) is None
    assert await opened.ask(OTHER) == second


async def test_a_late_holder_keeps_its_epoch_when_no_other_monitor_was_there(opened):
    epoch = await opened.ask(ONE)
    await opened.let_pass(10 * LEASE_SECONDS)

    assert await opened.ask(ONE) == epoch
    assert await opened.ask(OTHER) is None


async def test_a_released_lease_is_free_at_once_and_its_epoch_is_never_given_again(opened):
    first = await opened.ask(ONE)

    await opened.release(ONE)

    assert await opened.ask(OTHER) > first
    await opened.release(OTHER)
    assert await opened.ask(ONE) > first + 1


async def test_who_does_not_hold_the_lease_cannot_release_it(opened):
    await opened.release(OTHER)
    epoch = await opened.ask(ONE)

    await opened.release(OTHER)

    assert await opened.ask(OTHER) is None
    assert await opened.ask(ONE) == epoch


async def test_of_several_that_ask_at_once_one_leads(opened):
    for _ in range(5):
        epochs = await asyncio.gather(*(opened.ask(holder) for holder in opened.leases))

        assert sum(epoch is not None for epoch in epochs) == 1
        await opened.let_pass(OVER)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_an_epoch_has_one_holder_and_epochs_only_grow(opened, seed):
    chance = random.Random(seed)
    held: list[tuple[Epoch, str]] = []

    for _ in range(60):
        holder = chance.choice(list(opened.leases))
        match chance.choice(["ask", "ask", "ask", "wait", "wait long", "release"]):
            case "ask":
                epoch = await opened.ask(holder)
                if epoch is not None:
                    held.append((epoch, holder))
            case "wait":
                await opened.let_pass(LEASE_SECONDS * 0.4)
            case "wait long":
                await opened.let_pass(OVER)
            case "release":
                await opened.release(holder)

    epochs = [epoch for epoch, _ in held]
    assert epochs == sorted(epochs)
    assert len(set(held)) == len(set(epochs)) > 5
