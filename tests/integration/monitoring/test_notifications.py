"""Notifications on their whole way: changes in a real Postgres, real HTTP, and receivers that misbehave."""

import asyncio
import logging
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from uuid import uuid4

import asyncpg
import orjson
import pytest
from loopback.certificates import Authority
from loopback.receiver import HANG, KILL, ReceiverServer

from understudy.adapters.http.receivers import HttpReceivers
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring import notifications
from understudy.adapters.postgres.monitoring.notifications import TAKEN_SECONDS, PostgresNotificationOutbox
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.adapters.postgres.monitoring.subscriptions import PostgresSubscriptionStore
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind, Severity
from understudy.core.alerts.events import EventFormat, ModelEvent
from understudy.monitoring.notification_delivery import NotificationDelivery
from understudy.ports.monitoring.lease import Epoch
from understudy.ports.monitoring.notifications import NewSubscription
from understudy.ports.registry.registry import Actor

EPOCH: Epoch = 1
TIMEOUT_SECONDS = 1.0
TOKEN = "T0K3N-of-the-channel"
DELIVER = """
import asyncio, sys, time
from understudy.adapters.http.receivers import HttpReceivers
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.postgres.monitoring.notifications import PostgresNotificationOutbox
from understudy.monitoring.notification_delivery import NotificationDelivery
async def main(database_url, url):
    delivery = NotificationDelivery(
        PostgresNotificationOutbox(database_url), HttpReceivers({"hook": url}, "test", timeout_seconds=5),
        MemoryTelemetry(), finish_seconds=5, now=lambda: time.time() + 5)
    await delivery.tick(1)
    await delivery.settle()
asyncio.run(main(*sys.argv[1:]))
"""


class Clock:
    """The wall clock, as far ahead as was waited for."""

    def __init__(self) -> None:
        self.ahead_seconds = 5.0

    def __call__(self) -> float:
        return time.time() + self.ahead_seconds


class World:
    """A database with subscriptions, and a delivery that sends to ``hook`` and ``other``."""

    def __init__(self, database: asyncpg.Connection, database_url: str, hook: ReceiverServer, other: ReceiverServer):
        self.database = database
        self.clock = Clock()
        self.hook, self.other = hook, other
        self.outbox = PostgresNotificationOutbox(database_url)
        addresses = {"hook": f"{hook.url}/services/{TOKEN}", "other": other.url}
        self.receivers = HttpReceivers(addresses, "test", timeout_seconds=TIMEOUT_SECONDS)
        self.telemetry = MemoryTelemetry()
        self.delivery = NotificationDelivery(
            self.outbox, self.receivers, self.telemetry, finish_seconds=5, now=self.clock
        )

    async def subscribe(self, name: str, receiver: str = "hook", **columns: Any) -> None:
        names = ", ".join(["name", "receiver", *columns])
        places = ", ".join(f"${number}" for number in range(1, len(columns) + 3))
        await self.database.execute(
            f"INSERT INTO Subscription ({names}) VALUES ({places})", name, receiver, *columns.values()
        )

    async def deliver(self, times: int = 1, apart_seconds: float = 0.0) -> None:
        for _ in range(times):
            await self.delivery.tick(EPOCH)
            await self.delivery.settle()
            self.clock.ahead_seconds += apart_seconds

    async def states(self) -> list[tuple[str, bool, bool]]:
        rows = await self.database.fetch(
            "SELECT kind, delivered_at IS NOT NULL, next_attempt_at = 'infinity' FROM Notification ORDER BY id"
        )
        return [tuple(row) for row in rows]


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> AsyncIterator[World]:
    async with ReceiverServer() as hook, ReceiverServer() as other:
        found = World(database, database_url, hook, other)
        yield found
        await found.delivery.stop()
        await found.receivers.close()
        await found.outbox.close()


async def a_model(database: asyncpg.Connection, name: str = "churn") -> tuple[int, int]:
    """Register two versions of a model, the first one as champion."""
    first, second = [
        await database.fetchval(
            "INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema)"
            " VALUES ($1, $2, 's3://models', 'onnx', '{}') RETURNING id",
            name,
            label,
        )
        for label in ("6", "7")
    ]
    for version in (first, second):
        await database.execute("INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, 'tfs:8500')", version)
    await database.execute("INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", name, first)
    return first, second


def an_alert(kind: AlertKind = AlertKind.DRIFT, model: str = "churn", number: int = 0) -> AlertEvent:
    return AlertEvent(AlertAction.TRIGGER, kind, "test", model, f"{model} drifts {number}", time.time())


async def test_every_kind_of_change_is_told_by_the_transaction_that_makes_it(world):
    await world.subscribe("all")
    champion, challenger = await a_model(world.database)
    await world.database.execute(
        "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10, guard = 'alert'", challenger
    )
    await world.database.execute(
        "INSERT INTO Experiment (model_name, name, champion_version, challenger_version, metric)"
        " VALUES ('churn', 'e1', $1, $2, 'bought')",
        champion,
        challenger,
    )
    await world.database.execute("UPDATE Experiment SET ended_at = now()")
    await world.database.execute("UPDATE ModelVersion SET timeout_ms = 900 WHERE id = $1", challenger)
    await add_alert(world.database, an_alert())
    await add_alert(world.database, an_alert(AlertKind.CANARY_ROLLED_BACK))
    transaction = world.database.transaction()
    await transaction.start()
    await add_alert(world.database, an_alert(model="undone"))
    await transaction.rollback()

    await world.deliver(10)

    kinds = [event["type"].removeprefix("understudy.") for event in world.hook.events]
    assert set(kinds) == {
        "lifecycle.version_added",
        "lifecycle.endpoint_added",
        "lifecycle.version_changed",
        "policy.changed",
        "guard.started",
        "experiment.started",
        "experiment.ended",
        "drift.found",
        "rollout.rolled_back",
    }
    changed = [event for event in world.hook.events if event["type"] == "understudy.policy.changed"][1]
    assert changed["subject"] == "churn"
    assert changed["data"]["summary"].startswith("churn: policy changed: challenger none → 7, challenger_weight 0 → 10")
    assert changed["data"]["changed"]["challenger_weight"] == {"before": 0, "after": 10}
    assert "salt" not in changed["data"]["changed"]
    assert all(is_delivered for _, is_delivered, _ in await world.states())


async def test_a_rollout_that_failed_is_a_warning(world):
    _, challenger = await a_model(world.database)
    await world.database.execute(
        "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 10, guard = 'alert'", challenger
    )
    await world.subscribe("bad", kinds=["guard"], severity="warning")

    await world.database.execute(
        "ALTER TABLE Rollout DISABLE TRIGGER rollout_guard; UPDATE Rollout SET phase = 'FAILED', finished_at = now()"
    )

    assert await world.states() == [("guard.failed", False, False)]


async def test_a_receiver_gets_a_cloud_event_that_any_reader_of_the_standard_understands(world):
    await world.subscribe("drift", kinds=["drift"])
    await add_alert(world.database, an_alert())

    await world.deliver()

    ((headers, body),) = world.hook.requests
    event = orjson.loads(body)
    assert headers["content-type"] == "application/cloudevents+json; charset=utf-8"
    assert headers["idempotency-key"] == event["id"]
    assert (
        event.items()
        >= {
            "specversion": "1.0",
            "source": "/understudy/test",
            "type": "understudy.drift.found",
            "subject": "churn",
            "severity": "warning",
        }.items()
    )
    assert event["data"].items() >= {"summary": "churn drifts 0", "action": "trigger"}.items()


async def test_a_chat_gets_one_line_of_text(world):
    await world.subscribe("chat", format="slack", severity="warning")
    await add_alert(world.database, an_alert(model="<!channel> & co"))

    await world.deliver()

    ((headers, body),) = world.hook.requests
    assert headers["content-type"] == "application/json"
    assert orjson.loads(body) == {
        "text": "Warning: &lt;!channel&gt; &amp; co drifts 0 [test, drift.found]",
    }


async def test_a_subscription_gets_the_model_the_kinds_and_the_severity_that_it_asks_for(world):
    await world.subscribe("churn", model_name="churn")
    await world.subscribe("drift", receiver="other", kinds=["drift.found"])
    await world.subscribe("bad", receiver="other", severity="error")
    for model in ("churn", "visits"):
        await add_alert(world.database, an_alert(model=model))
    await add_alert(world.database, an_alert(AlertKind.CHAMPION_REGRESSED, "visits"))

    await world.deliver()

    found = await world.database.fetch(
        "SELECT s.name, n.kind, n.model_name FROM Notification n JOIN Subscription s ON s.id = n.subscription_id"
        " ORDER BY n.id"
    )
    assert [tuple(row) for row in found] == [
        ("churn", "drift.found", "churn"),
        ("drift", "drift.found", "churn"),
        ("drift", "drift.found", "visits"),
        ("bad", "rollout.champion_regressed", "visits"),
    ]
    assert len(world.hook.taken) == 1
    assert len(world.other.taken) == 3


async def test_nothing_is_lost_and_nothing_is_told_twice_whatever_a_receiver_answers(world):
    await world.subscribe("all", kinds=["drift"])
    world.hook.script = [
        (500, "", b"oops"),
        (429, "retry-after: 7\r\n", b"slow down"),
        HANG,
        (302, f"location: {world.other.url}/elsewhere\r\n", b""),
        (503, "", b""),
    ]
    for number in range(4):
        await add_alert(world.database, an_alert(number=number))
    await add_alert(world.database, an_alert(model="visits"))

    await world.deliver(30, 20)

    assert [event["data"]["summary"] for event in world.hook.events] == [
        "churn drifts 0",
        "visits drifts 0",
        *(f"churn drifts {number}" for number in range(1, 4)),
    ]
    assert len(world.hook.taken) == len(set(world.hook.taken)) == 5
    assert len(world.hook.requests) == 5 + 5
    assert world.other.requests == []
    assert await world.states() == [("drift.found", True, False)] * 5


async def test_what_waited_for_days_while_monitors_of_the_release_before_led_is_told_once_and_in_order(world):
    """On this schema triggers write whichever release leads, and the one before delivers none."""
    await world.subscribe("all", kinds=["drift"])
    for number in range(3):
        await add_alert(world.database, an_alert(number=number))
    await world.database.execute(
        "UPDATE Notification SET created_at = now() - INTERVAL '40 days', next_attempt_at = now() - INTERVAL '40 days'"
    )

    await world.delivery.measure(EPOCH)
    await world.deliver(3)

    assert [event["data"]["summary"] for event in world.hook.events] == [f"churn drifts {n}" for n in range(3)]
    assert len(world.hook.requests) == 3
    assert await world.states() == [("drift.found", True, False)] * 3


async def test_a_receiver_that_asks_for_time_gets_it(world):
    await world.subscribe("all", kinds=["drift"])
    world.hook.script = [(429, "retry-after: 30\r\n", b"")]
    await add_alert(world.database, an_alert())

    await world.deliver(1, 20)
    await world.deliver(1, 11)
    too_early = len(world.hook.requests)
    await world.deliver()

    assert (too_early, len(world.hook.requests)) == (1, 2)


async def test_a_receiver_that_hangs_holds_up_neither_another_one_nor_the_monitor(world):
    await world.subscribe("dead", kinds=["drift"])
    await world.subscribe("well", receiver="other", kinds=["drift"])
    world.hook.script = [HANG] * 40
    for number in range(30):
        await add_alert(world.database, an_alert(model=f"model-{number}"))

    began = time.monotonic()
    await world.delivery.tick(EPOCH)
    ticked_after = time.monotonic() - began
    await asyncio.wait_for(world.hook.arrived.wait(), 10)
    while len(world.other.taken) < 30:
        assert time.monotonic() - began < 20
        world.other.arrived.clear()
        await asyncio.wait_for(world.other.arrived.wait(), 10)
        await asyncio.sleep(0)

    assert ticked_after < TIMEOUT_SECONDS
    assert world.hook.taken == []


async def test_a_monitor_that_is_killed_between_sending_and_marking_tells_the_event_again_under_its_id(
    world, database_url
):
    await world.subscribe("all", kinds=["drift"])
    for number in range(3):
        await add_alert(world.database, an_alert(number=number))
    world.hook.script = [None, KILL]

    monitor = await asyncio.create_subprocess_exec(sys.executable, "-c", DELIVER, database_url, world.hook.url)
    world.hook.victim = monitor.pid
    assert await asyncio.wait_for(monitor.wait(), 60) == -signal.SIGKILL
    await world.deliver()
    meanwhile = len(world.hook.requests)
    world.clock.ahead_seconds += TAKEN_SECONDS + 10
    await world.deliver()

    summaries = [event["data"]["summary"] for event in world.hook.events]
    assert summaries == [f"churn drifts {number}" for number in range(3)]
    assert meanwhile == 2
    assert len(world.hook.taken) == 4
    assert world.hook.taken[1] == world.hook.taken[2]
    assert await world.states() == [("drift.found", True, False)] * 3


async def test_two_monitors_at_once_send_each_notification_once(world, database_url):
    await world.subscribe("all", kinds=["drift"])
    second = PostgresNotificationOutbox(database_url)
    other = NotificationDelivery(second, world.receivers, world.telemetry, finish_seconds=5, now=world.clock)
    for number in range(50):
        await add_alert(world.database, an_alert(model=f"model-{number}"))

    for delivery in (world.delivery, other):
        await delivery.tick(EPOCH)
    for delivery in (world.delivery, other):
        await delivery.settle()
    await second.close()

    assert len(world.hook.requests) == len(set(world.hook.taken)) == 50


async def test_what_a_receiver_refuses_is_given_up_and_the_next_one_goes_its_way(world):
    await world.subscribe("all", kinds=["drift"])
    world.hook.script = [(400, "", b"invalid_payload")]
    for number in range(2):
        await add_alert(world.database, an_alert(number=number))

    await world.deliver(2)

    assert await world.states() == [("drift.found", False, True), ("drift.found", True, False)]
    assert world.telemetry.counts["notification_deliveries_total", "all", "given_up"] == 1


@pytest.mark.parametrize("value", ["1e400", "[" * 1_100 + "]" * 1_100])
async def test_a_payload_that_no_reader_takes_is_given_up_and_holds_up_no_other(world, value):
    await world.subscribe("all", kinds=["drift"])
    for model, payload in (("churn", f'{{"value": {value}}}'), ("visits", "{}")):
        await world.database.execute(
            "INSERT INTO Notification (subscription_id, event_id, kind, severity, model_name, payload)"
            " SELECT id, gen_random_uuid(), 'drift.found', 'info', $1, $2::jsonb FROM Subscription",
            model,
            payload,
        )

    await world.deliver()

    assert await world.states() == [("drift.found", False, True), ("drift.found", True, False)]


async def test_a_subscription_that_is_removed_is_sent_nothing_more_by_a_task_under_way(world):
    await world.subscribe("all", kinds=["drift"])
    await add_alert(world.database, an_alert())
    (one,) = await world.outbox.due_subscriptions(world.clock())
    await world.database.execute("DELETE FROM Subscription")

    assert list(await world.outbox.due(one.id, world.clock(), 10)) == []


async def test_a_row_that_another_session_has_locked_holds_up_no_job_of_the_monitor(world, database_url):
    await world.subscribe("all", kinds=["drift"])
    for number in range(3):
        await add_alert(world.database, an_alert(number=number))
    holder = await asyncpg.connect(database_url, timeout=10)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("SELECT FROM Notification FOR UPDATE")
    (one,) = await world.outbox.due_subscriptions(world.clock())
    marking = asyncio.create_task(
        world.outbox.delivered(await world.database.fetchval("SELECT min(id) FROM Notification"))
    )
    while not await holder.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert not marking.done()

    (backlog,) = await world.outbox.tidy(1)
    due = await world.outbox.due_subscriptions(world.clock())

    assert not marking.done()
    await transaction.rollback()
    await marking
    await holder.close(timeout=5)
    assert (backlog.waiting, backlog.given_up) == (3, 0)
    assert list(due) == [one]


async def test_what_is_too_much_is_given_up_in_pieces(world, monkeypatch):
    monkeypatch.setattr(notifications, "PIECE_ROWS", 2)
    await world.subscribe("all", kinds=["drift"])
    await world.subscribe("gone", kinds=["drift"])
    for number in range(8):
        await add_alert(world.database, an_alert(number=number))
    await world.database.execute("DELETE FROM Subscription WHERE name = 'gone'")

    (backlog,) = await world.outbox.tidy(3)

    assert (backlog.waiting, backlog.given_up) == (3, 5)
    waiting = "SELECT count(*) FROM Notification WHERE next_attempt_at < 'infinity'"
    assert await world.database.fetchval(waiting) == 3


async def test_asking_what_is_due_costs_a_step_for_each_model_and_not_for_each_event(world):
    await world.subscribe("all", kinds=["drift"])
    await world.database.execute(
        """INSERT INTO Notification (subscription_id, event_id, kind, severity, model_name, payload, next_attempt_at)
           SELECT id, gen_random_uuid(), 'drift.found', 'info', 'model-' || n % 10, '{}', now() + INTERVAL '1 hour'
           FROM Subscription, generate_series(1, 20000) n"""
    )
    await world.database.execute("VACUUM ANALYZE Notification")

    plan = await world.database.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {notifications._DUE_SUBSCRIPTIONS}",  # noqa: SLF001 - it is judged
        world.clock(),
    )
    (top,) = orjson.loads(plan)

    assert top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"] < 200


async def test_what_waits_beyond_the_bound_or_for_no_subscription_is_given_up_the_oldest_first(world):
    await world.subscribe("all", kinds=["drift"])
    await world.subscribe("gone", kinds=["drift"])
    for number in range(4):
        await add_alert(world.database, an_alert(number=number))
    await world.database.execute("DELETE FROM Subscription WHERE name = 'gone'")

    (backlog,) = await world.outbox.tidy(3)
    await world.deliver(4)

    assert (backlog.name, backlog.waiting) == ("all", 3)
    assert backlog.oldest_seconds >= 0
    assert [event["data"]["summary"] for event in world.hook.events] == [f"churn drifts {one}" for one in (1, 2, 3)]
    errors = await world.database.fetch("SELECT DISTINCT last_error FROM Notification WHERE delivered_at IS NULL")
    assert {row[0] for row in errors} == {"more than 3 waited for this receiver", "the subscription was removed"}


@pytest.mark.parametrize(
    ("function", "table"),
    [
        ("policy", "PolicyAudit"),
        ("alert", "AlertOutbox"),
        ("rollout", "Rollout"),
        ("registry", "RegistryAudit"),
        ("experiment", "Experiment"),
        ("loading", "LoadedVersion"),
    ],
)
async def test_a_trigger_that_is_hung_on_another_table_tells_nothing(world, function, table):
    await world.subscribe("all")
    await world.database.execute(
        f"CREATE TEMP TABLE mine AS SELECT * FROM {table};"
        " ALTER TABLE mine ADD COLUMN IF NOT EXISTS severity TEXT DEFAULT 'info';"
        f" CREATE TRIGGER forge AFTER INSERT ON mine FOR EACH ROW EXECUTE FUNCTION understudy_notify_{function}()"
    )

    for column in ("model_name TEXT", "payload JSONB", "kind TEXT", "action TEXT", "state TEXT", "subject TEXT"):
        await world.database.execute(f"ALTER TABLE mine ADD COLUMN IF NOT EXISTS {column}")
    await world.database.execute(
        "INSERT INTO mine (model_name, payload, kind, action, subject)"
        " VALUES ('forged', $1, 'rollout', 'insert', 'key')",
        '{"kind": "drift", "summary": "forged"}',
    )
    await world.database.execute("DROP TABLE mine")

    assert await world.states() == []


async def test_a_change_goes_on_when_its_notification_cannot_be_written(world):
    await world.subscribe("all")
    champion, challenger = await a_model(world.database)
    await world.database.execute("ALTER TABLE Notification ADD CONSTRAINT none CHECK (FALSE) NOT VALID")

    await world.database.execute("UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = 5", challenger)
    await world.database.execute("SELECT understudy_rollback('churn')")

    assert await world.database.fetchval("SELECT challenger_weight FROM ServingPolicy") == 0
    assert champion


async def test_a_change_goes_on_though_another_session_holds_the_outbox(world, database_url):
    await world.subscribe("all")
    holder = await asyncpg.connect(database_url, timeout=10)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("LOCK TABLE Notification IN ACCESS EXCLUSIVE MODE")
    await world.database.execute("SET statement_timeout = '3s'")

    await add_alert(world.database, an_alert())

    await transaction.rollback()
    await holder.close(timeout=5)
    assert await world.database.fetchval("SELECT count(*) FROM AlertOutbox") == 1
    assert await world.states() == []


async def test_a_session_that_removes_a_subscription_holds_up_no_change(world, database_url):
    await world.subscribe("all")
    await a_model(world.database)
    remover = await asyncpg.connect(database_url, timeout=10)
    transaction = remover.transaction()
    await transaction.start()
    await remover.execute("DELETE FROM Subscription")

    await asyncio.wait_for(world.database.execute("SELECT understudy_rollback('churn')"), 5)

    await transaction.rollback()
    await remover.close(timeout=5)


async def test_subscriptions_that_are_made_at_once_do_not_pass_their_bound(world, database_url):
    await world.database.execute(
        "INSERT INTO Subscription (name, receiver) SELECT 's' || n, 'r' FROM generate_series(1, 99) n"
    )
    first = await asyncpg.connect(database_url, timeout=10)
    transaction = first.transaction()
    await transaction.start()
    await first.execute("INSERT INTO Subscription (name, receiver) VALUES ('one', 'r')")
    second = asyncio.create_task(
        world.database.execute("INSERT INTO Subscription (name, receiver) VALUES ('more', 'r')")
    )
    pid, waits = world.database.get_server_pid(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $1"
    while not await first.fetchval(waits, pid):
        assert not second.done()
        await asyncio.sleep(0.01)
    await transaction.commit()
    await first.close(timeout=5)

    with pytest.raises(asyncpg.CheckViolationError, match="there are 100 subscriptions already"):
        await second


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://127.0.0.1:1/s3cr3t-token", "ConnectError"),
        ("http://169.254.169.254/s3cr3t-token", "is link-local"),
        ("http://[::ffff:169.254.169.254]/s3cr3t-token", "is link-local"),
        ("http://no-such-host.invalid/s3cr3t-token", "NameNotResolved"),
        ("http://s3cr3t-token@127.0.0.1:1/", "ConnectError"),
        ("ftp://127.0.0.1/s3cr3t-token", "expected https://host/path"),
    ],
)
async def test_an_address_that_cannot_be_or_may_not_be_called_is_an_answer_without_the_token(url, said):
    receivers = HttpReceivers({"hook": url}, "test", timeout_seconds=TIMEOUT_SECONDS)
    event = ModelEvent("1", "drift.found", Severity.WARNING, "churn", 0.0, {})

    delivery = await receivers.send("hook", EventFormat.CLOUDEVENTS, event)
    unknown = await receivers.send("nobody", EventFormat.CLOUDEVENTS, event)
    await receivers.close()

    assert delivery.status is None
    assert said in delivery.detail
    assert "s3cr3t" not in delivery.detail
    assert "no-such-host" not in delivery.detail
    assert "has no receiver nobody" in unknown.detail


@pytest.mark.parametrize(("name", "status"), [("localhost", 202), ("elsewhere.example", None)])
async def test_a_certificate_is_judged_by_the_receivers_name_though_an_address_is_connected_to(
    tmp_path, monkeypatch, name, status
):
    authority = Authority(tmp_path / "authority")
    certificate = authority.sign(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.cert, certificate.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
    event = ModelEvent("1", "drift.found", Severity.WARNING, "churn", 0.0, {})

    async with ReceiverServer(context) as server:
        url = f"https://localhost:{server.port}/{TOKEN}"
        receivers = HttpReceivers({"hook": url}, "test", timeout_seconds=5)
        delivery = await receivers.send("hook", EventFormat.CLOUDEVENTS, event)
        await receivers.close()

    assert delivery.status == status
    assert ("CERTIFICATE_VERIFY_FAILED" in delivery.detail) == (status is None)
    assert TOKEN not in delivery.detail
    assert "localhost" not in delivery.detail
    assert [headers["host"] for headers, _ in server.requests] == [f"localhost:{server.port}"] * (status is not None)


@contextmanager
def a_port_that_drops_packets(host: str, port: int) -> Iterator[None]:
    """A socket whose queue of connections is full: the kernel drops whatever asks for one more."""
    with ExitStack() as stack:
        full = stack.enter_context(socket.socket())
        full.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        full.bind((host, port))
        full.listen(0)
        for _ in range(3):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            queued.connect_ex((host, port))
        yield


async def test_an_address_that_drops_packets_leaves_time_for_the_next_one(world):
    port = world.hook.port
    event = ModelEvent("1", "drift.found", Severity.WARNING, "churn", 0.0, {})
    receivers = HttpReceivers(
        {"hook": f"http://localhost:{port}/"},
        "test",
        timeout_seconds=2.0,
        resolve=lambda _host, _port: ["127.0.0.66", "127.0.0.1"],
    )

    with a_port_that_drops_packets("127.0.0.66", port):
        delivery = await receivers.send("hook", EventFormat.CLOUDEVENTS, event)
    await receivers.close()

    assert delivery.status == 202


async def test_a_receiver_that_answers_in_a_few_words_keeps_its_connection(world):
    event = ModelEvent("1", "drift.found", Severity.WARNING, "churn", 0.0, {})
    world.hook.script = [(200, "", b"ok " * 300)] * 3

    for _ in range(3):
        await world.receivers.send("hook", EventFormat.CLOUDEVENTS, event)

    assert len(world.hook.requests) == 3
    assert world.hook.connections == 1


async def test_no_token_of_an_address_is_in_a_row_or_in_the_log(world, caplog):
    await world.subscribe("all", kinds=["drift"])
    world.hook.script = [(500, "", f"no hook /services/{TOKEN}".encode())]
    await add_alert(world.database, an_alert())

    with caplog.at_level(logging.DEBUG):
        await world.deliver(2, 20)

    rows = await world.database.fetch("SELECT Notification::TEXT || Subscription::TEXT FROM Notification, Subscription")
    assert not [row for row in rows if TOKEN in row[0]]
    assert not [said for said in caplog.messages if TOKEN in said]
    assert len(world.hook.taken) == 1


async def test_under_their_own_roles_an_engineer_subscribes_and_a_monitor_delivers(world, database_url):
    _, _, place = database_url.rpartition("@")
    logins = {"engineer": f"e_{uuid4().hex[:12]}", "monitor": f"m_{uuid4().hex[:12]}"}
    for role, name in logins.items():
        await world.database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE understudy_{role}")
    urls = {role: f"postgresql://{name}:secret@{place}" for role, name in logins.items()}
    await a_model(world.database)
    store = PostgresSubscriptionStore(urls["engineer"], timeout_seconds=5)
    outbox = PostgresNotificationOutbox(urls["monitor"])
    delivery = NotificationDelivery(outbox, world.receivers, world.telemetry, finish_seconds=5, now=world.clock)
    try:
        made = await store.add(NewSubscription("all", "hook"), Actor("another", "cli"))
        await store.send_test("all", Actor("another", "cli"))
        engineer = await asyncpg.connect(urls["engineer"], timeout=10)
        await engineer.execute("UPDATE ServingPolicy SET shadow_percent = 7")
        await engineer.close(timeout=5)
        for _ in range(3):
            await delivery.tick(EPOCH)
            await delivery.settle()
        await delivery.measure(EPOCH)
    finally:
        await outbox.close()
        for name in logins.values():
            await world.database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")

    assert made.created_by == logins["engineer"]
    assert {event["type"] for event in world.hook.events} == {"understudy.policy.changed", "understudy.test.sent"}
    assert {event["data"]["actor"] for event in world.hook.events} == {logins["engineer"]}
    assert world.telemetry.gauges["notifications_waiting", "all"] == 0
