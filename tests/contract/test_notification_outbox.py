"""What every ``NotificationOutbox`` does."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import uuid4

import asyncpg
import pytest

from understudy.adapters.memory.notifications import MemoryNotificationOutbox
from understudy.adapters.postgres.monitoring.notifications import TAKEN_SECONDS, PostgresNotificationOutbox
from understudy.core.alerts.alerts import Severity
from understudy.core.alerts.events import ModelEvent
from understudy.ports.monitoring.notifications import NotificationOutbox, QueuedNotification

Add = Callable[[ModelEvent], Awaitable[None]]
SUBSCRIPTIONS = (("one", "hook"), ("other", "chat"))
FIRST, SECOND = (
    ModelEvent(str(uuid4()), "drift.found", Severity.WARNING, "churn", 0.0, {"summary": text})
    for text in ("first", "second")
)
OF_VISITS = ModelEvent(str(uuid4()), "policy.changed", Severity.INFO, "visits", 0.0, {})
OF_NONE = ModelEvent(str(uuid4()), "test.sent", Severity.INFO, None, 0.0, {"actor": "dana"})


def later(seconds: float = 0.0) -> float:
    """Return a time at which everything that was just added is due, by the database's clock too."""
    return time.time() + 5 + seconds


class World:
    def __init__(self, outbox: NotificationOutbox, add: Add) -> None:
        self.outbox = outbox
        self.add = add

    async def due(self, now: float, limit: int = 10) -> list[QueuedNotification]:
        """Take what is due for the first subscription."""
        subscriptions = [one for one in await self.outbox.due_subscriptions(now) if one.name == "one"]
        return list(await self.outbox.due(subscriptions[0].id, now, limit)) if subscriptions else []


@pytest.fixture(params=["twin", "postgres"])
def database_if_real(request: pytest.FixtureRequest) -> tuple[asyncpg.Connection, str] | None:
    """Where the real outbox is; ``None`` for the twin. Not async, because it starts async fixtures."""
    if request.param == "twin":
        return None
    return request.getfixturevalue("database"), request.getfixturevalue("database_url")


@pytest.fixture
async def world(database_if_real: tuple[asyncpg.Connection, str] | None) -> AsyncIterator[World]:
    if database_if_real is None:
        twin = MemoryNotificationOutbox(*SUBSCRIPTIONS)

        async def add(event: ModelEvent) -> None:
            twin.add(event)

        yield World(twin, add)
        return
    database, url = database_if_real
    await database.executemany("INSERT INTO Subscription (name, receiver) VALUES ($1, $2)", SUBSCRIPTIONS)

    async def insert(event: ModelEvent) -> None:
        await database.execute(
            "INSERT INTO Notification (subscription_id, event_id, kind, severity, model_name, payload)"
            " SELECT id, $1, $2, $3, $4, $5::jsonb FROM Subscription ORDER BY id",
            event.id,
            event.kind,
            event.severity,
            event.model_name,
            '{"summary": "' + str(event.data.get("summary", "")) + '"}',
        )

    outbox = PostgresNotificationOutbox(url)
    yield World(outbox, insert)
    await outbox.close()


def ids(taken: list[QueuedNotification]) -> list[str]:
    return [one.event.id for one in taken if one.event is not None]


async def test_an_event_is_due_for_each_subscription_with_its_receiver(world):
    await world.add(FIRST)

    found = await world.outbox.due_subscriptions(later())

    assert [(one.name, one.receiver) for one in found] == list(SUBSCRIPTIONS)
    (taken,) = await world.due(later())
    assert (taken.attempts, taken.event.kind, taken.event.model_name) == (1, FIRST.kind, "churn")
    assert taken.event.data["summary"] == "first"


async def test_an_empty_outbox_has_nothing_due(world):
    assert list(await world.outbox.due_subscriptions(later())) == []


async def test_of_each_model_the_oldest_one_is_taken_and_the_next_one_waits_for_it(world):
    for event in (FIRST, SECOND, OF_VISITS, OF_NONE):
        await world.add(event)
    now = later()

    taken = await world.due(now)
    meanwhile = await world.due(now)
    await world.outbox.delivered(taken[0].id)
    follows = await world.due(now)

    assert ids(taken) == [FIRST.id, OF_VISITS.id, OF_NONE.id]
    assert meanwhile == []
    assert ids(follows) == [SECOND.id]


async def test_no_more_are_taken_than_were_asked_for(world):
    for event in (FIRST, OF_VISITS):
        await world.add(event)

    assert ids(await world.due(later(), 1)) == [FIRST.id]
    assert ids(await world.due(later(), 1)) == [OF_VISITS.id]


async def test_what_was_taken_is_left_alone_for_a_minute_and_then_due_again(world):
    await world.add(FIRST)
    now = later()

    (taken,) = await world.due(now)
    meanwhile = await world.due(now + TAKEN_SECONDS - 1)
    (again,) = await world.due(now + TAKEN_SECONDS)

    assert meanwhile == []
    assert (again.id, again.attempts) == (taken.id, 2)


async def test_what_failed_is_due_when_it_was_said_to_be_and_holds_up_its_model_alone(world):
    for event in (FIRST, SECOND, OF_VISITS):
        await world.add(event)
    now = later()
    failing, visits = await world.due(now)

    await world.outbox.failed(failing.id, "500 \0 \ud800 broken", now + 4)
    await world.outbox.delivered(visits.id)

    assert await world.due(now + 3.9) == []
    assert ids(await world.due(now + 4)) == [FIRST.id]


async def test_what_is_given_up_holds_nothing_up_and_never_comes_again(world):
    for event in (FIRST, SECOND):
        await world.add(event)
    (given_up,) = await world.due(later())

    await world.outbox.failed(given_up.id, "400 invalid", None)
    (follows,) = await world.due(later())
    await world.outbox.delivered(follows.id)
    await world.outbox.failed(follows.id, "said by a slower sender", 0.0)

    assert ids([follows]) == [SECOND.id]
    assert await world.due(later(10**6)) == []


async def test_what_is_given_up_meanwhile_is_not_revived_by_its_sender(world):
    for event in (FIRST, SECOND):
        await world.add(event)
    (taken,) = await world.due(later())
    await world.outbox.tidy(1)

    await world.outbox.failed(taken.id, "said by a slower sender", 0.0)

    assert ids(await world.due(later())) == [SECOND.id]


async def test_a_long_run_takes_what_was_due_when_it_began_and_reserves_it_from_now_on(world):
    for event in (FIRST, OF_VISITS):
        await world.add(event)
    began = later()
    (one,) = [found for found in await world.outbox.due_subscriptions(began) if found.name == "one"]

    taken = await world.outbox.due(one.id, began + TAKEN_SECONDS, 10, due_by=began)
    meanwhile = await world.due(began + 2 * TAKEN_SECONDS - 1)

    assert ids(list(taken)) == [FIRST.id, OF_VISITS.id]
    assert meanwhile == []


async def test_a_subscription_whose_oldest_events_wait_for_their_time_has_nothing_due(world):
    for event in (FIRST, SECOND):
        await world.add(event)
    now = later()
    for one in await world.outbox.due_subscriptions(now):
        await world.outbox.due(one.id, now, 10)

    assert list(await world.outbox.due_subscriptions(now)) == []


async def test_what_waits_is_told_and_what_is_too_much_is_given_up_the_oldest_first(world):
    for event in (FIRST, SECOND):
        await world.add(event)

    backlogs = await world.outbox.tidy(1)

    assert [(one.name, one.waiting, one.given_up) for one in backlogs] == [("one", 1, 1), ("other", 1, 1)]
    assert ids(await world.due(later())) == [SECOND.id]
