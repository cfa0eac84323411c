"""Alerts on their whole way: a real Postgres, real HTTP, and a receiver that misbehaves as PagerDuty may."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Self

import orjson
import pytest

from understudy.adapters.http.alerts import PagerDutyChannel, WebhookChannel
from understudy.adapters.postgres.monitoring.outbox import TAKEN_SECONDS, PostgresAlertOutbox, add_alert
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, Outcome
from understudy.monitoring.alert_delivery import deliver_due

ROUTING_KEY = "5ecre75ecre75ecre75ecre75ecre700"
TRIGGER = AlertEvent(
    AlertAction.TRIGGER, AlertKind.CANARY_ROLLED_BACK, "test", "visits", "visits: version 2 rolled back", time.time()
)
RESOLVE = replace(TRIGGER, action=AlertAction.RESOLVE)
HANG, DRIP, KILL = "hang", "drip", "kill"
TIMEOUT_SECONDS = 2.0
DELIVER = """
import asyncio, sys, time
from understudy.adapters.http.alerts import PagerDutyChannel
from understudy.adapters.postgres.monitoring.outbox import PostgresAlertOutbox
from understudy.monitoring.alert_delivery import deliver_due
async def main(database_url, base_url, routing_key):
    outbox = PostgresAlertOutbox(database_url, ["pagerduty"])
    await deliver_due(outbox, [PagerDutyChannel(routing_key, base_url=base_url)], lambda: time.time() + 5)
asyncio.run(main(*sys.argv[1:]))
"""


class FakePagerDuty:
    """Answers as told, in order, and then 202; keeps incidents by their key as the Events API documents it."""

    def __init__(self) -> None:
        self.script: list[Any] = []
        """``HANG``, ``DRIP``, ``KILL``, or status, headers and body."""
        self.victim: asyncio.subprocess.Process | None = None
        """Who dies on ``KILL``: after it sent the event, and before it hears that it was taken."""
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.open: set[str] = set()
        self.opened: list[str] = []
        self.changes: list[str] = []
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._talk(reader, writer)
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length:")[2].split("\r\n")[0])
                path, body = head.split()[1], orjson.loads(await reader.readexactly(length))
                self.requests.append((path, body))
                if self.script[:1] == [DRIP]:
                    await self._drip(writer)
                status, headers, said = await self._answer(path, body)
                length_line = "" if "content-length" in headers else f"content-length: {len(said)}\r\n"
                writer.write(f"HTTP/1.1 {status} -\r\n{headers}{length_line}\r\n".encode() + said)
                await writer.drain()

    async def _drip(self, writer: asyncio.StreamWriter) -> None:
        """Answer so slowly that each byte is in time and the whole never is."""
        self.script.pop(0)
        for letter in b"HTTP/1.1 202 A very long way of saying yes":
            writer.write(bytes([letter]))
            await writer.drain()
            await asyncio.sleep(TIMEOUT_SECONDS / 5)

    async def _answer(self, path: str, body: dict[str, Any]) -> tuple[int, str, bytes]:
        told = self.script.pop(0) if self.script else None
        if told == HANG:
            await asyncio.sleep(4 * TIMEOUT_SECONDS)
            raise ConnectionError
        if isinstance(told, tuple):
            return told
        self._take(path, body)
        if told == KILL:
            assert self.victim is not None
            os.kill(self.victim.pid, signal.SIGKILL)
        return 202, "", b'{"status":"success"}'

    def _take(self, path: str, body: dict[str, Any]) -> None:
        if path == "/v2/change/enqueue":
            self.changes.append(body["payload"]["summary"])
        elif body["event_action"] == "trigger" and body["dedup_key"] not in self.open:
            self.open.add(body["dedup_key"])
            self.opened.append(body["dedup_key"])
        elif body["event_action"] == "resolve":
            self.open.discard(body["dedup_key"])


class Clock:
    """The wall clock, as far ahead as was waited for."""

    def __init__(self) -> None:
        self.ahead_seconds = 5.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


@pytest.fixture
async def receiver() -> AsyncIterator[FakePagerDuty]:
    async with FakePagerDuty() as server:
        yield server


@pytest.fixture
async def pagerduty(receiver: FakePagerDuty) -> AsyncIterator[PagerDutyChannel]:
    channel = PagerDutyChannel(ROUTING_KEY, base_url=receiver.url, timeout_seconds=TIMEOUT_SECONDS)
    yield channel
    await channel.close()


@pytest.fixture
async def outbox(database_url: str) -> AsyncIterator[PostgresAlertOutbox]:
    outbox = PostgresAlertOutbox(database_url, ["pagerduty"])
    yield outbox
    await outbox.close()


async def test_each_fault_is_one_incident_that_ends_when_it_is_over_whatever_the_receiver_does(
    outbox, receiver, pagerduty
):
    receiver.script = [(500, "", b"oops"), HANG, (429, "retry-after: 7\r\n", b"slow down"), (503, "", b"")]
    digits = replace(TRIGGER, model_name="digits")
    clock = Clock()

    for event in (TRIGGER, TRIGGER, digits, RESOLVE):
        await outbox.add(event)
    for _ in range(20):
        await deliver_due(outbox, [pagerduty], clock)
        clock.ahead_seconds += 3

    assert sorted(receiver.opened) == [
        "understudy/test/digits/canary_rolled_back",
        "understudy/test/visits/canary_rolled_back",
    ]
    assert receiver.open == {"understudy/test/digits/canary_rolled_back"}
    assert len(receiver.requests) == 4 + 4


async def test_a_receiver_that_asks_for_time_gets_it(outbox, receiver, pagerduty):
    receiver.script = [(429, "retry-after: 30\r\n", b"")]
    clock = Clock()
    await outbox.add(TRIGGER)

    await deliver_due(outbox, [pagerduty], clock)
    clock.ahead_seconds += 20
    await deliver_due(outbox, [pagerduty], clock)
    too_early = len(receiver.requests)
    clock.ahead_seconds += 11
    await deliver_due(outbox, [pagerduty], clock)

    assert (too_early, len(receiver.requests)) == (1, 2)


async def test_a_deliverer_that_is_killed_between_sending_and_marking_loses_nothing_and_doubles_no_incident(
    database_url, outbox, receiver, pagerduty
):
    receiver.script = [KILL]
    clock = Clock()
    await outbox.add(TRIGGER)
    await outbox.add(RESOLVE)

    arguments = [sys.executable, "-c", DELIVER, database_url, receiver.url, ROUTING_KEY]
    receiver.victim = await asyncio.create_subprocess_exec(*arguments)
    assert await asyncio.wait_for(receiver.victim.wait(), 60) == -signal.SIGKILL
    before = await deliver_due(outbox, [pagerduty], clock)
    open_meanwhile = set(receiver.open)
    clock.ahead_seconds += TAKEN_SECONDS + 10
    await deliver_due(outbox, [pagerduty], clock)

    assert before.total() == 0
    assert open_meanwhile == {TRIGGER.dedup_key}
    assert receiver.opened == [TRIGGER.dedup_key]
    assert receiver.open == set()
    assert [body["event_action"] for _, body in receiver.requests] == ["trigger", "trigger", "resolve"]


async def test_two_deliverers_at_once_send_each_event_once(database_url, receiver, pagerduty):
    first, second = (PostgresAlertOutbox(database_url, ["pagerduty"]) for _ in range(2))
    for number in range(30):
        await first.add(replace(TRIGGER, model_name=f"model-{number}"))

    await asyncio.gather(*(deliver_due(outbox, [pagerduty], Clock()) for outbox in (first, second)))

    assert len(receiver.requests) == len(receiver.opened) == 30
    for outbox in (first, second):
        await outbox.close()


async def test_an_event_that_somebody_takes_at_this_moment_is_left_to_them(database, outbox):
    await outbox.add(TRIGGER)
    assert list(await outbox.due(0.0, 10)) == []
    async with database.transaction():
        await database.execute("SELECT FROM AlertOutbox FOR UPDATE")

        meanwhile = await outbox.due(Clock()(), 10)

    assert list(meanwhile) == []
    assert len(await outbox.due(Clock()(), 10)) == 1


async def test_an_alert_is_kept_with_the_transaction_that_it_is_about_or_not_at_all(database, outbox):
    transaction = database.transaction()
    await transaction.start()
    await add_alert(database, TRIGGER)
    await transaction.rollback()
    async with database.transaction():
        await add_alert(database, replace(TRIGGER, model_name="digits"))

    assert [alert.event.model_name for alert in await outbox.due(Clock()(), 10)] == ["digits"]


async def test_an_incident_has_a_link_to_its_page_where_somebody_said_where_the_pages_are(outbox, receiver, pagerduty):
    await outbox.add(TRIGGER)
    await deliver_due(outbox, [pagerduty], Clock(), runbooks_url="https://docs.shop.example/runbooks")
    await outbox.add(replace(TRIGGER, model_name="digits"))
    await deliver_due(outbox, [pagerduty], Clock())

    (_, linked), (_, bare) = receiver.requests
    assert linked["links"] == [
        {"href": "https://docs.shop.example/runbooks/RolledBack.md", "text": "Runbook"},
        *bare["links"],
    ]


async def test_a_change_is_noted_and_wakes_nobody(outbox, receiver, pagerduty):
    await outbox.add(replace(TRIGGER, action=AlertAction.CHANGE, summary="visits: version 2 goes to 5 %"))

    await deliver_due(outbox, [pagerduty], Clock())

    assert receiver.changes == ["visits: version 2 goes to 5 %"]
    assert receiver.opened == []


@pytest.mark.parametrize("payload", ["[]", '"x"', "{}", '{"action": "trigger"}', '{"action": 7, "links": [1]}'])
async def test_a_row_that_is_no_event_is_given_up_with_its_reason_and_the_others_go_their_way(
    database, outbox, receiver, pagerduty, payload
):
    await database.execute(
        "INSERT INTO AlertOutbox (dedup_key, action, severity, payload) VALUES ('k', 'trigger', 'error', $1)", payload
    )
    await outbox.add(TRIGGER)

    await deliver_due(outbox, [pagerduty], Clock())
    await deliver_due(outbox, [pagerduty], Clock())

    rows = await database.fetch(
        "SELECT last_error, next_attempt_at = 'infinity' AS is_over FROM AlertOutbox ORDER BY id"
    )
    assert rows[0]["last_error"].startswith("the payload is no event")
    assert rows[0]["is_over"]
    assert len(rows) == 2
    assert receiver.opened == [TRIGGER.dedup_key]


async def test_what_nobody_could_be_told_is_not_told_to_the_first_channel_one_day(database_url, receiver, pagerduty):
    alone, later = PostgresAlertOutbox(database_url, []), PostgresAlertOutbox(database_url, ["pagerduty"])
    await alone.add(TRIGGER)
    await deliver_due(alone, [], Clock())

    await deliver_due(later, [pagerduty], Clock())

    assert receiver.requests == []
    for outbox in (alone, later):
        await outbox.close()


@pytest.mark.timed
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((400, "", b"invalid " + ROUTING_KEY.encode()), 400),
        ((500, "", b"x" * 1_000_000), 500),
        ((500, "content-length: 1000000\r\n", b"the rest never comes" * 100), 500),
        ((302, "location: http://127.0.0.1:1/\r\n", b""), 302),
        ((503, "retry-after: Fri, 21 Nov 2025 10:00:00 GMT\r\n", b"\xff\x00"), 503),
        ((500, "content-encoding: gzip\r\n", b"no gzip at all"), 500),
        (HANG, None),
        (DRIP, None),
    ],
)
async def test_whatever_a_receiver_says_is_a_short_answer_without_our_secret(receiver, pagerduty, answer, status):
    receiver.script = [answer]

    began = time.monotonic()
    delivery = await pagerduty.send(TRIGGER)

    assert delivery.status == status
    assert delivery.outcome is not Outcome.DELIVERED
    assert time.monotonic() - began < 2 * TIMEOUT_SECONDS
    assert len(delivery.detail) <= 500
    assert ROUTING_KEY not in delivery.detail


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:1/s3cr3t",
        "http://127.0.0.1:99999/s3cr3t",
        "http://\0/s3cr3t",
        "http://[s3cr3t",
        "http://a b/s3cr3t",
        "no-scheme/s3cr3t",
        "ftp://s3cr3t",
    ],
)
async def test_a_receiver_that_is_not_there_is_an_answer_and_no_error(url):
    channel = WebhookChannel(url, timeout_seconds=TIMEOUT_SECONDS)

    delivery = await channel.send(TRIGGER)
    await channel.close()

    assert (delivery.status, delivery.outcome) == (None, Outcome.TRY_AGAIN)
    assert "s3cr3t" not in delivery.detail


@pytest.mark.parametrize(
    "echoed",
    [
        "POST /hooks/T0K3Npath?key=T0K3N%2Fquery failed",
        "unknown key T0K3N/query",
        "unknown key T0K3N%2Fquery",
        "no hook T0K3Npath",
        "bad login user:T0K3Npass",
        "x" * 495 + "T0K3Npath",
    ],
)
async def test_a_receiver_that_repeats_a_part_of_its_address_gives_no_token_away(receiver, echoed):
    host = receiver.url.removeprefix("http://")
    url = f"http://user:T0K3Npass@{host}/hooks/T0K3Npath?key=T0K3N%2Fquery"
    channel = WebhookChannel(url, timeout_seconds=TIMEOUT_SECONDS)
    receiver.script = [(500, "", echoed.encode())]

    delivery = await channel.send(TRIGGER)
    await channel.close()

    assert delivery.status == 500
    assert delivery.detail
    assert "T0K3N" not in delivery.detail


async def test_a_webhook_gets_the_event_and_no_secret_is_logged(receiver, pagerduty, caplog):
    channel = WebhookChannel(f"{receiver.url}/t0ken", timeout_seconds=TIMEOUT_SECONDS)
    receiver.script = [(202, "", b""), (500, "", b"no")]

    with caplog.at_level(logging.INFO):
        for sender in (channel, channel, pagerduty):
            await sender.send(TRIGGER)
    await channel.close()

    path, body = receiver.requests[0]
    assert (path, body["alert"]["dedup_key"]) == ("/t0ken", TRIGGER.dedup_key)
    assert not [said for said in caplog.messages if "t0ken" in said or ROUTING_KEY in said]
