"""``understudy subscription``, with what a monitor makes of its notifications."""

import asyncio
import time

import asyncpg
from command import CommandLine

from understudy.adapters.postgres.monitoring import subscriptions


async def test_a_subscription_is_added_listed_and_removed(understudy: CommandLine, database: asyncpg.Connection):
    added = await understudy.beside(
        "subscription", "add", "ops", "--receiver", "ops-chat", "--format", "slack", "--model", "churn",
        "--kind", "rollout", "--kind", "drift.found", "--severity", "warning", "--json",
    )  # fmt: skip
    twice = await understudy.beside("subscription", "add", "ops", "--receiver", "ops-chat")
    await database.execute("SELECT understudy_test_subscription('ops')")
    await database.execute("UPDATE Notification SET attempts = 1, last_error = '404 no_service'")
    listed = await understudy.beside("subscription", "list", "--json")
    shown = await understudy.beside("subscription", "list")
    tried = await understudy.beside("subscription", "remove", "ops", "--dry-run")
    removed = await understudy.beside("subscription", "remove", "ops")
    gone = await understudy.beside("subscription", "remove", "ops")

    assert added.code == 0, added
    (one,) = listed.document["subscriptions"]
    assert one.items() >= {
        "name": "ops", "receiver": "ops-chat", "format": "slack", "model_name": "churn", "severity": "warning",
        "kinds": ["rollout", "drift.found"], "waiting": 1, "given_up": 0, "last_error": "404 no_service",
    }.items()  # fmt: skip
    assert "rollout, drift.found" in shown.out
    assert twice.code == 5
    assert "there is a subscription 'ops' already" in twice.err
    assert "Would remove ops; 1 notifications that wait are given up; nothing was changed." in " ".join(
        tried.out.split()
    )
    assert removed.code == 0
    assert gone.code == 4
    assert await database.fetchval("SELECT count(*) FROM Subscription") == 0


async def test_no_list_of_subscriptions_reads_every_notification(database: asyncpg.Connection):
    await database.execute(
        """INSERT INTO Subscription (name, receiver) SELECT 's' || n, 'r' FROM generate_series(1, 20) n;
           INSERT INTO Notification (subscription_id, event_id, kind, severity, payload, delivered_at, next_attempt_at)
           SELECT one.id, gen_random_uuid(), 'drift.found', 'info', '{}',
                  CASE WHEN n % 50 <> 0 THEN now() END, CASE WHEN n % 100 = 0 THEN 'infinity' ELSE now() END
           FROM Subscription AS one, generate_series(1, 500) n;
           ANALYZE Notification"""
    )

    plan = await database.fetch(f"EXPLAIN {subscriptions._RECORDS}")  # noqa: SLF001 - the query itself is judged

    assert not [row[0] for row in plan if "Seq Scan on notification" in row[0]]


async def test_what_does_not_fit_is_refused_in_words(understudy: CommandLine, database: asyncpg.Connection):
    kind = await understudy.beside("subscription", "add", "ops", "--receiver", "chat", "--kind", "rollouts")
    address = await understudy.beside("subscription", "add", "ops", "--receiver", "https://hooks.example/T0K3N")
    await database.execute(
        "INSERT INTO Subscription (name, receiver) SELECT 's' || n, 'r' FROM generate_series(1, 100) n"
    )
    many = await understudy.beside("subscription", "add", "ops", "--receiver", "chat")

    assert kind.code == 2
    assert "there is no kind of events 'rollouts'" in kind.err
    assert address.code == 7
    assert "a receiver's name has 1 to 63 lower-case letters" in address.err
    assert "T0K3N" not in address.err + address.out
    assert many.code == 7
    assert "there are 100 subscriptions already" in many.err


async def test_a_test_says_what_the_receiver_answered_to_the_monitor(
    understudy: CommandLine, database: asyncpg.Connection
):
    await database.execute("INSERT INTO Subscription (name, receiver) VALUES ('ops', 'chat')")

    taken = await _test_that_ends(understudy, database, "delivered_at = now()")
    refused = await _test_that_ends(understudy, database, "last_error = '403 invalid_token'")
    unsent = await understudy.beside("subscription", "test", "ops", "--wait", "0")
    unknown = await understudy.beside("subscription", "test", "dev")

    assert taken == (0, "✔ the receiver of ops took the test")
    assert refused[0] == 1
    assert "the receiver of ops did not take the test: 403 invalid_token" in refused[1]
    assert "This test is sent again by itself, for a day." in " ".join(refused[1].split())
    assert unsent.code == 6
    assert unknown.code == 4


async def _test_that_ends(understudy: CommandLine, database: asyncpg.Connection, with_what: str) -> tuple[int, str]:
    """Begin a test, do to its notification what a monitor would, and return how it ended."""
    running = asyncio.create_task(understudy.beside("subscription", "test", "ops"))
    give_up = time.monotonic() + 60
    while await database.execute(f"UPDATE Notification SET {with_what} WHERE last_error IS NULL") == "UPDATE 0":
        assert time.monotonic() < give_up
        await asyncio.sleep(0.02)
    done = await running
    await database.execute("DELETE FROM Notification")
    return done.code, (done.out or done.err).strip()
