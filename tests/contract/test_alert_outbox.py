"""What every ``AlertOutbox`` does."""

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from understudy.adapters.memory.outbox import MemoryAlertOutbox
from understudy.adapters.postgres.monitoring.outbox import TAKEN_SECONDS, PostgresAlertOutbox
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, Link
from understudy.ports.monitoring.alerts import AlertOutbox, QueuedAlert

Open = Callable[..., AlertOutbox]
TRIGGER = AlertEvent(
    AlertAction.TRIGGER,
    AlertKind.CANARY_ROLLED_BACK,
    "test",
    "visits",
    "visits: version 2 rolled back at 10 %",
    1_763_720_000.25,
    {"checks": [{"check": "error_rate", "ratio": 3.1}]},
    (Link("https://example.org", "runbook"),),
)
RESOLVE = replace(TRIGGER, action=AlertAction.RESOLVE)
OTHER = replace(TRIGGER, model_name="digits")
CHANGE = replace(TRIGGER, action=AlertAction.CHANGE)


def later(seconds: float = 0.0) -> float:
    """Return a time at which everything that was just added is due, by the database's clock too."""
    return time.time() + 5 + seconds


@pytest.fixture(params=["twin", "postgres"])
def postgres_url(request: pytest.FixtureRequest) -> str | None:
    """Where the real outbox is; ``None`` for the twin. Not async, because it starts async fixtures."""
    return request.getfixturevalue("database_url") if request.param == "postgres" else None


@pytest.fixture
async def open_outbox(postgres_url: str | None) -> AsyncIterator[Open]:
    opened: list[AlertOutbox] = []

    def open_one(*channels: str) -> AlertOutbox:
        if postgres_url is None:
            outbox: AlertOutbox = opened[0] if opened else MemoryAlertOutbox(channels)
        else:
            outbox = PostgresAlertOutbox(postgres_url, channels)
        opened.append(outbox)
        return outbox

    yield open_one
    for outbox in opened:
        await outbox.close()


@pytest.fixture
def outbox(open_outbox: Open) -> AlertOutbox:
    return open_outbox("pagerduty")


def told(alerts: list[QueuedAlert]) -> list[tuple[str, str | None, AlertAction]]:
    return [(alert.channel, alert.event.model_name, alert.event.action) for alert in alerts]


async def test_an_event_comes_out_as_it_went_in(outbox):
    await outbox.add(TRIGGER)

    (alert,) = await outbox.due(later(), 10)

    assert alert.event == TRIGGER
    assert (alert.channel, alert.attempts) == ("pagerduty", 1)


async def test_an_empty_outbox_has_nothing_due(outbox):
    assert list(await outbox.due(later(), 10)) == []


async def test_an_event_that_was_taken_is_left_alone_for_a_minute_and_then_due_again(open_outbox):
    first, second = open_outbox("pagerduty"), open_outbox("pagerduty")
    await first.add(TRIGGER)
    now = later()

    (taken,) = await first.due(now, 10)
    meanwhile = await second.due(now + TAKEN_SECONDS - 1, 10)
    (again,) = await second.due(now + TAKEN_SECONDS, 10)

    assert list(meanwhile) == []
    assert (again.id, again.attempts) == (taken.id, 2)


async def test_a_delivered_event_never_comes_again_even_if_somebody_slower_says_that_it_failed(outbox):
    await outbox.add(TRIGGER)
    (alert,) = await outbox.due(later(), 10)

    await outbox.delivered(alert.id)
    await outbox.failed(alert.id, "timeout", 0.0)
    await outbox.delivered(alert.id)

    assert list(await outbox.due(later(10 * TAKEN_SECONDS), 10)) == []


async def test_a_failed_event_is_due_when_it_was_said_to_be(outbox):
    await outbox.add(TRIGGER)
    now = later()
    (alert,) = await outbox.due(now, 10)

    await outbox.failed(alert.id, "500 \0 \ud800 broken", now + 4)

    assert list(await outbox.due(now + 3.9, 10)) == []
    (again,) = await outbox.due(now + 4, 10)
    assert again.attempts == 2


async def test_an_end_waits_for_its_beginning_also_when_that_has_to_be_sent_again(outbox):
    await outbox.add(TRIGGER)
    await outbox.add(RESOLVE)
    now = later()

    (trigger,) = await outbox.due(now, 10)
    while_taken = await outbox.due(now, 10)
    await outbox.failed(trigger.id, "timeout", now + 300)
    while_waiting = await outbox.due(now + 200, 10)
    (again,) = await outbox.due(now + 300, 10)
    await outbox.delivered(again.id)
    (resolve,) = await outbox.due(now + 300, 10)

    assert list(while_taken) == list(while_waiting) == []
    assert (again.event.action, resolve.event.action) == (AlertAction.TRIGGER, AlertAction.RESOLVE)


async def test_an_event_that_was_given_up_holds_nothing_up_and_never_comes_again(outbox):
    await outbox.add(TRIGGER)
    await outbox.add(RESOLVE)
    (trigger,) = await outbox.due(later(), 10)

    await outbox.failed(trigger.id, "400 invalid event", None)

    (resolve,) = await outbox.due(later(), 10)
    await outbox.delivered(resolve.id)
    assert resolve.event.action is AlertAction.RESOLVE
    assert list(await outbox.due(later(10**9), 10)) == []


async def test_different_incidents_do_not_wait_for_each_other_and_come_oldest_first(outbox):
    for event in (TRIGGER, OTHER, RESOLVE):
        await outbox.add(event)

    alerts = list(await outbox.due(later(), 10))

    assert [alert.event for alert in alerts] == [TRIGGER, OTHER]


async def test_no_more_are_taken_than_were_asked_for(outbox):
    for event in (TRIGGER, OTHER):
        await outbox.add(event)

    assert [alert.event for alert in await outbox.due(later(), 1)] == [TRIGGER]
    assert [alert.event for alert in await outbox.due(later(), 1)] == [OTHER]


async def test_each_channel_gets_each_event_in_order_and_one_that_is_down_holds_up_no_other(open_outbox):
    outbox = open_outbox("pagerduty", "webhook")
    await outbox.add(TRIGGER)
    await outbox.add(RESOLVE)
    now = later()

    begins = list(await outbox.due(now, 10))
    for alert in begins:
        if alert.channel == "pagerduty":
            await outbox.delivered(alert.id)
        else:
            await outbox.failed(alert.id, "timeout", now + 300)
    ends = list(await outbox.due(now, 10))
    late = list(await outbox.due(now + 300, 10))

    assert sorted(told(begins)) == [
        ("pagerduty", "visits", AlertAction.TRIGGER),
        ("webhook", "visits", AlertAction.TRIGGER),
    ]
    assert told(ends) == [("pagerduty", "visits", AlertAction.RESOLVE)]
    assert ("webhook", "visits", AlertAction.TRIGGER) in told(late)
    assert ("webhook", "visits", AlertAction.RESOLVE) not in told(late)


async def test_with_nobody_to_tell_nothing_is_due(open_outbox):
    outbox = open_outbox()
    await outbox.add(TRIGGER)

    assert list(await outbox.due(later(), 10)) == []


@pytest.mark.parametrize("before", [[], [CHANGE], [TRIGGER, RESOLVE], [OTHER]])
async def test_the_end_of_what_nobody_was_told_of_is_not_told(outbox, before):
    for event in before:
        await outbox.add(event)
    already = len(await _all_due(outbox))

    await outbox.add(RESOLVE)

    assert await _all_due(outbox) == []
    assert already == len(before)


@pytest.mark.parametrize("before", [[TRIGGER], [TRIGGER, CHANGE], [TRIGGER, RESOLVE, TRIGGER]])
async def test_the_end_of_an_open_incident_is_told_also_when_its_beginning_was_delivered_long_ago(outbox, before):
    for event in before:
        await outbox.add(event)
    await _all_due(outbox)

    await outbox.add(RESOLVE)

    assert [alert.event for alert in await _all_due(outbox)] == [RESOLVE]


async def _all_due(outbox: AlertOutbox) -> list[QueuedAlert]:
    """Deliver everything, and return it."""
    delivered = []
    while alerts := await outbox.due(later(), 10):
        for alert in alerts:
            await outbox.delivered(alert.id)
            delivered.append(alert)
    return delivered
