"""Delivering alerts: nothing lost, nothing out of order, one incident for each fault."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.adapters.memory.alerts import MemoryAlertChannel
from understudy.adapters.memory.outbox import TAKEN_SECONDS, MemoryAlertOutbox
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, Delivery, Outcome
from understudy.errors import RegistryUnavailable
from understudy.monitoring.alert_delivery import AT_ONCE, deliver_due

TRIGGER = AlertEvent(AlertAction.TRIGGER, AlertKind.DRIFT, "test", "visits", "visits: drifts", 0.0)
RESOLVE = replace(TRIGGER, action=AlertAction.RESOLVE)
OUTAGES = [Delivery(500), Delivery(None, "no answer"), Delivery(429, retry_after_seconds=2.0), Delivery(503)]


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


async def an_outbox(*events: AlertEvent, channels: tuple[str, ...] = ("pagerduty",)) -> MemoryAlertOutbox:
    outbox = MemoryAlertOutbox(channels)
    for event in events:
        await outbox.add(event)
    return outbox


async def test_an_incident_is_opened_and_ended_in_one_call():
    outbox, channel = await an_outbox(TRIGGER, RESOLVE), MemoryAlertChannel()

    came_to = await deliver_due(outbox, [channel], Clock())

    assert [event.action for event in channel.taken] == [AlertAction.TRIGGER, AlertAction.RESOLVE]
    assert came_to == Counter({("pagerduty", Outcome.DELIVERED): 2})


async def test_an_event_that_is_not_taken_is_sent_once_in_a_call_and_again_when_its_wait_is_over():
    outbox, channel, clock = await an_outbox(TRIGGER), MemoryAlertChannel(answers=OUTAGES), Clock()
    waits = []

    for _ in range(len(OUTAGES) + 1):
        began = clock.now
        while not await deliver_due(outbox, [channel], clock):
            clock.now += 0.5
        waits.append(clock.now - began)

    assert waits == [0.0, 1.0, 2.0, 2.0, 8.0]
    assert channel.opened == 1


async def test_an_event_whose_wait_is_over_before_the_call_is_comes_at_the_next_one():
    class SlowChannel(MemoryAlertChannel):
        async def send(self, event: AlertEvent) -> Delivery:
            clock.now += 2
            return await super().send(event)

    clock, channel = Clock(), SlowChannel(answers=[Delivery(500)])
    outbox = await an_outbox(TRIGGER, replace(TRIGGER, model_name="digits"))

    first = await deliver_due(outbox, [channel], clock)
    second = await deliver_due(outbox, [channel], clock)

    assert first == Counter({("pagerduty", Outcome.TRY_AGAIN): 1, ("pagerduty", Outcome.DELIVERED): 1})
    assert second == Counter({("pagerduty", Outcome.DELIVERED): 1})


async def test_a_refused_event_is_given_up_and_the_next_one_goes_its_way():
    outbox, channel = await an_outbox(TRIGGER, RESOLVE), MemoryAlertChannel(answers=[Delivery(400, "invalid event")])

    came_to = await deliver_due(outbox, [channel], Clock())

    assert came_to == Counter({("pagerduty", Outcome.REFUSED): 1, ("pagerduty", Outcome.DELIVERED): 1})
    assert channel.taken == [RESOLVE]


async def test_a_channel_that_is_down_holds_up_no_other():
    channels = MemoryAlertChannel("pagerduty"), MemoryAlertChannel("webhook", answers=[Delivery(None)])
    outbox = await an_outbox(TRIGGER, RESOLVE, channels=("pagerduty", "webhook"))

    await deliver_due(outbox, channels, Clock())

    assert [len(channel.taken) for channel in channels] == [2, 0]


async def test_one_that_dies_between_sending_and_marking_makes_no_second_incident_and_loses_nothing():
    class DyingOutbox(MemoryAlertOutbox):
        dies = True

        async def delivered(self, alert_id: int) -> None:
            if self.dies:
                raise asyncio.CancelledError
            await super().delivered(alert_id)

    outbox, channel, clock = DyingOutbox(["pagerduty"]), MemoryAlertChannel(), Clock()
    await outbox.add(TRIGGER)
    with pytest.raises(asyncio.CancelledError):
        await deliver_due(outbox, [channel], clock)

    outbox.dies = False
    clock.now += TAKEN_SECONDS
    await deliver_due(outbox, [channel], clock)

    assert channel.taken == [TRIGGER, TRIGGER]
    assert channel.opened == 1
    assert list(await outbox.due(clock.now + TAKEN_SECONDS, 10)) == []


async def test_an_outbox_that_cannot_be_reached_is_said_after_every_event_of_the_round_was_tried():
    class AwayOutbox(MemoryAlertOutbox):
        async def delivered(self, alert_id: int) -> None:
            raise RegistryUnavailable

    class Channel(MemoryAlertChannel):
        async def send(self, event: AlertEvent) -> Delivery:
            await asyncio.sleep(0.01 if event.model_name == "digits" else 0)
            return await super().send(event)

    outbox, channel = AwayOutbox(["pagerduty"]), Channel()
    for model_name in ("visits", "digits"):
        await outbox.add(replace(TRIGGER, model_name=model_name))

    with pytest.raises(RegistryUnavailable):
        await deliver_due(outbox, [channel], Clock())

    assert len(channel.taken) == 2


async def test_no_more_are_taken_when_the_time_is_over_and_the_rest_comes_at_the_next_call():
    class SlowChannel(MemoryAlertChannel):
        async def send(self, event: AlertEvent) -> Delivery:
            clock.now += 1
            return await super().send(event)

    clock, channel = Clock(), SlowChannel()
    outbox = await an_outbox(*(replace(TRIGGER, model_name=f"model-{number}") for number in range(2 * AT_ONCE)))

    first = await deliver_due(outbox, [channel], clock, budget_seconds=5)
    second = await deliver_due(outbox, [channel], clock, budget_seconds=5)

    assert (first.total(), second.total()) == (AT_ONCE, AT_ONCE)


faults = st.lists(st.sampled_from(OUTAGES), max_size=8)
models = st.sampled_from(["visits", "digits"])
histories = st.lists(st.tuples(models, st.sampled_from([AlertAction.TRIGGER, AlertAction.RESOLVE])), max_size=12)


@given(histories, faults, faults)
def test_whatever_fails_every_channel_is_told_everything_in_order_and_once(history, of_one, of_other):
    async def live() -> None:
        clock = Clock()
        one = MemoryAlertChannel("pagerduty", of_one)
        other = MemoryAlertChannel("webhook", of_other)
        outbox = MemoryAlertOutbox(("pagerduty", "webhook"))
        for number, (model_name, action) in enumerate(history):
            await outbox.add(replace(TRIGGER, model_name=model_name, action=action, summary=str(number)))
        for _ in range(20):
            await deliver_due(outbox, [one, other], clock)
            clock.now += 300

        for model_name in ("visits", "digits"):
            kept = [taken.summary for taken in one.taken if taken.model_name == model_name]
            assert kept == [taken.summary for taken in other.taken if taken.model_name == model_name]
            assert kept == sorted(kept, key=int)
            assert len(kept) == len(set(kept))
            expected = [str(number) for number, (name, action) in enumerate(history) if name == model_name]
            assert set(kept) >= {number for number in expected if history[int(number)][1] is AlertAction.TRIGGER}
        assert one.open == other.open

    asyncio.run(live())
