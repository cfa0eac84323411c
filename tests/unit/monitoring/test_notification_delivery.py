"""Delivering notifications: nothing lost, nothing twice by id, and no receiver holds up another."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.memory.notifications import TAKEN_SECONDS, MemoryNotificationOutbox, MemoryReceivers
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.core.alerts.alerts import Delivery, Severity
from understudy.core.alerts.events import MAX_AGE_SECONDS, EventFormat, ModelEvent
from understudy.errors import RegistryUnavailable
from understudy.monitoring import notification_delivery
from understudy.monitoring.notification_delivery import CHAT_AT_ONCE, NotificationDelivery
from understudy.ports.monitoring.notifications import DueSubscription, QueuedNotification

OUTAGES = [Delivery(500), Delivery(None, "no answer"), Delivery(429, retry_after_seconds=2.0), Delivery(302)]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def an_event(number: int = 0, model: str = "churn") -> ModelEvent:
    return ModelEvent(f"id-{model}-{number}", "drift.found", Severity.WARNING, model, 0.0, {})


class World:
    def __init__(self, *subscriptions: tuple[str, str], receivers: MemoryReceivers | None = None) -> None:
        self.outbox = MemoryNotificationOutbox(*(subscriptions or [("ops", "hook")]))
        self.receivers = receivers or MemoryReceivers()
        self.telemetry = MemoryTelemetry()
        self.clock = Clock()
        self.delivery = self.delivers_from(self.outbox)

    def delivers_from(self, outbox: MemoryNotificationOutbox) -> NotificationDelivery:
        return NotificationDelivery(outbox, self.receivers, self.telemetry, finish_seconds=0.05, now=self.clock)

    async def deliver(self) -> None:
        await self.delivery.tick(1)
        await self.delivery.settle()

    def taken(self, receiver: str = "hook") -> list[str]:
        return [event.id for event in self.receivers.taken.get(receiver, [])]


async def test_every_event_of_a_model_is_told_in_order_in_one_tick():
    world = World()
    for number in range(3):
        world.outbox.add(an_event(number))

    await world.deliver()

    assert world.taken() == ["id-churn-0", "id-churn-1", "id-churn-2"]
    assert world.telemetry.counts["notification_deliveries_total", "ops", "delivered"] == 3


async def test_a_receiver_that_takes_nothing_is_asked_once_a_tick_and_again_when_the_wait_is_over():
    world = World(receivers=MemoryReceivers(hook=OUTAGES))
    world.outbox.add(an_event())
    waits = []

    for _ in range(len(OUTAGES) + 1):
        began = world.clock.now
        before = world.telemetry.counts.total()
        while world.telemetry.counts.total() == before:
            await world.deliver()
            world.clock.now += 0.5
        waits.append(world.clock.now - 0.5 - began)

    assert waits == [0.0, 0.5, 1.5, 3.5, 7.5]
    assert world.taken() == ["id-churn-0"]


async def test_a_tick_waits_for_no_receiver_and_starts_no_second_task_for_one_that_hangs():
    class HangingReceivers(MemoryReceivers):
        calls = 0

        async def send(self, receiver: str, event_format: EventFormat, event: ModelEvent, /) -> Delivery:
            if receiver == "dead":
                self.calls += 1
                await asyncio.Event().wait()
            return await super().send(receiver, event_format, event)

    receivers = HangingReceivers()
    world = World(("dead", "dead"), ("ops", "hook"), receivers=receivers)
    world.outbox.add(an_event())

    await world.delivery.tick(1)
    await asyncio.wait_for(receivers.has_taken.wait(), 10)
    world.clock.now += TAKEN_SECONDS
    await world.delivery.tick(1)
    await asyncio.sleep(0)
    await world.delivery.stop()

    assert world.taken() == ["id-churn-0"]
    assert receivers.calls == 1


async def test_a_send_that_is_under_way_may_end_when_the_monitor_stops_and_no_other_begins():
    class SlowReceivers(MemoryReceivers):
        has_begun = asyncio.Event()

        async def send(self, receiver: str, event_format: EventFormat, event: ModelEvent, /) -> Delivery:
            self.has_begun.set()
            await asyncio.sleep(0)
            return await super().send(receiver, event_format, event)

    receivers = SlowReceivers()
    world = World(receivers=receivers)
    for number in range(2):
        world.outbox.add(an_event(number))
    await world.delivery.tick(1)
    await asyncio.wait_for(receivers.has_begun.wait(), 10)

    await world.delivery.stop()
    stopped_with = world.taken()
    await world.deliver()

    assert stopped_with == ["id-churn-0"]
    assert world.taken() == ["id-churn-0", "id-churn-1"]


async def test_one_that_dies_between_sending_and_marking_tells_the_event_once_more_under_its_id():
    class DyingOutbox(MemoryNotificationOutbox):
        dies = True

        async def delivered(self, notification_id: int) -> None:
            if self.dies:
                raise RegistryUnavailable
            await super().delivered(notification_id)

    world, outbox = World(), DyingOutbox(("ops", "hook"))
    world.delivery = world.delivers_from(outbox)
    outbox.add(an_event())

    await world.deliver()
    outbox.dies = False
    await world.deliver()
    too_early = len(world.taken())
    world.clock.now += TAKEN_SECONDS
    await world.deliver()

    assert too_early == 1
    assert world.taken() == ["id-churn-0", "id-churn-0"]
    assert list(await outbox.due_subscriptions(world.clock.now + 10 * TAKEN_SECONDS)) == []


async def test_an_outbox_that_is_away_in_a_round_is_asked_again_at_the_next_tick():
    class AwayOutbox(MemoryNotificationOutbox):
        is_away = True

        async def due(
            self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
        ) -> Sequence[QueuedNotification]:
            if self.is_away:
                raise RegistryUnavailable
            return await super().due(subscription_id, now, limit, due_by=due_by)

    world, outbox = World(), AwayOutbox(("ops", "hook"))
    world.delivery = world.delivers_from(outbox)
    outbox.add(an_event())

    await world.deliver()
    outbox.is_away = False
    await world.deliver()

    assert world.taken() == ["id-churn-0"]


async def test_a_notification_that_is_never_taken_is_given_up_after_a_day_and_the_next_one_follows():
    answers = [Delivery(503, "broken", retry_after_seconds=number % 2 * 3_600.0) for number in range(100)]
    world = World(receivers=MemoryReceivers(hook=answers))
    began = world.clock.now
    world.outbox.add(an_event(0), now=began)
    world.outbox.add(an_event(1), now=began + MAX_AGE_SECONDS)

    while not world.outbox.errors["ops"]:
        assert answers
        await world.deliver()
        world.clock.now += 300
    given_up_after = world.clock.now - began
    answers.clear()
    while not world.taken():
        await world.deliver()
        world.clock.now += 300

    assert world.taken() == ["id-churn-1"]
    assert MAX_AGE_SECONDS <= given_up_after <= MAX_AGE_SECONDS + 2 * 3_600
    assert world.outbox.errors == {"ops": ["503 broken"]}
    assert world.telemetry.counts["notification_deliveries_total", "ops", "given_up"] == 1


async def test_a_long_run_reserves_what_it_takes_from_then_on():
    class Slow(MemoryReceivers):
        async def send(self, receiver: str, event_format: EventFormat, event: ModelEvent, /) -> Delivery:
            world.clock.now += TAKEN_SECONDS
            assert not await world.outbox.due_subscriptions(world.clock.now - 1)
            return await super().send(receiver, event_format, event)

    world = World(receivers=Slow())
    for number in range(3):
        world.outbox.add(an_event(number))

    await world.deliver()

    assert world.taken() == ["id-churn-0", "id-churn-1", "id-churn-2"]


async def test_a_receiver_that_asks_for_time_gets_it_for_all_models_and_subscriptions():
    receivers = MemoryReceivers(hook=[Delivery(429, retry_after_seconds=30.0)])
    world = World(("a", "hook"), ("b", "hook"), ("c", "other"), receivers=receivers)
    world.outbox.add(an_event())
    del world.outbox.subscriptions["b"]
    await world.deliver()
    world.outbox.subscriptions["b"] = "hook"
    world.outbox.add(an_event(1, "visits"))

    world.clock.now += 29
    await world.deliver()
    too_early = world.taken()
    world.clock.now += 1
    await world.deliver()

    assert too_early == []
    assert sorted(world.taken()) == ["id-churn-0", "id-churn-0", "id-visits-1", "id-visits-1"]
    assert world.taken("other") == ["id-churn-0", "id-visits-1"]


async def test_a_chat_gets_two_at_once():
    limits = []

    class Chats(MemoryNotificationOutbox):
        async def due_subscriptions(self, now: float) -> Sequence[DueSubscription]:
            return [one._replace(format=EventFormat.SLACK) for one in await super().due_subscriptions(now)]

        async def due(
            self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
        ) -> Sequence[QueuedNotification]:
            limits.append(limit)
            return await super().due(subscription_id, now, limit, due_by=due_by)

    world, outbox = World(), Chats(("ops", "hook"))
    world.delivery = world.delivers_from(outbox)
    for number in range(5):
        outbox.add(an_event(number, f"model-{number}"))

    await world.deliver()

    assert set(limits) == {CHAT_AT_ONCE}
    assert len(world.taken()) == 5


async def test_what_cannot_be_read_is_given_up_and_the_others_go_on():
    class Unreadable(MemoryNotificationOutbox):
        async def due(
            self, subscription_id: int, now: float, limit: int, *, due_by: float | None = None
        ) -> Sequence[QueuedNotification]:
            taken = await super().due(subscription_id, now, limit, due_by=due_by)
            return [one._replace(event=None) if one.id == 1 else one for one in taken]

    world, outbox = World(), Unreadable(("ops", "hook"))
    world.delivery = world.delivers_from(outbox)
    for number in range(2):
        outbox.add(an_event(number))

    await world.deliver()

    assert world.taken() == ["id-churn-1"]
    assert outbox.errors == {"ops": ["its payload cannot be read"]}
    assert world.telemetry.counts["notification_deliveries_total", "ops", "given_up"] == 1


async def test_what_is_too_much_is_counted_as_given_up(monkeypatch):
    monkeypatch.setattr(notification_delivery, "MAX_WAITING", 2)
    world = World()
    for number in range(5):
        world.outbox.add(an_event(number))

    await world.delivery.measure(1)

    assert world.telemetry.counts["notification_deliveries_total", "ops", "given_up"] == 3
    assert world.telemetry.gauges["notifications_waiting", "ops"] == 2


async def test_what_waits_is_measured_and_a_subscription_that_is_removed_loses_its_series():
    world = World(("ops", "hook"), ("old", "hook"))
    world.outbox.add(an_event(), now=40.0)

    await world.delivery.measure(1)
    before = dict(world.telemetry.gauges)
    del world.outbox.subscriptions["old"]
    await world.delivery.measure(1)

    assert before == {
        (gauge, name): value
        for name in ("ops", "old")
        for gauge, value in (("notifications_waiting", 1), ("notification_oldest_seconds", 40.0))
    }
    assert {name for _, name in world.telemetry.gauges} == {"ops"}
    assert ("notification_deliveries_total", "ops", "given_up") in world.telemetry.counts


faults = st.lists(st.sampled_from(OUTAGES), max_size=8)
models = st.lists(st.sampled_from(["churn", "visits"]), max_size=12)


@pytest.mark.deep
@given(models, faults, faults)
def test_whatever_fails_every_subscription_is_told_everything_in_order_and_once(history, of_one, of_other):
    async def live() -> None:
        world = World(("a", "one"), ("b", "other"), receivers=MemoryReceivers(one=of_one, other=of_other))
        for number, model in enumerate(history):
            world.outbox.add(an_event(number, model))
        for _ in range(20):
            await world.deliver()
            world.clock.now += 300

        for receiver in ("one", "other"):
            for model in ("churn", "visits"):
                told = [one for one in world.taken(receiver) if f"-{model}-" in one]
                assert told == [f"id-{model}-{number}" for number, name in enumerate(history) if name == model]

    asyncio.run(live())
