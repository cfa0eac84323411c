"""Every table that grows has a bound: what is past it goes, a bounded number of rows at a time, and all else stays."""

from typing import NamedTuple

import asyncpg
import pytest
from traffic.logged import lead
from worlds.rollout import insert_rollout, two_versions

from understudy.adapters.postgres.monitoring.metrics import PostgresMetricStore
from understudy.adapters.postgres.monitoring.outbox import add_alert
from understudy.adapters.postgres.monitoring.retention import MAX_DEAD_LETTERS, PostgresRetentionStore
from understudy.adapters.postgres.monitoring.windows import PostgresWindowLog
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.alerts.alerts import AlertAction, AlertEvent, AlertKind
from understudy.errors import LeadershipLost, RegistryUnavailable
from understudy.monitoring.retention_job import (
    ALERT_DAYS,
    DEAD_LETTER_DAYS,
    NOTIFICATION_DAYS,
    PIECE_EVENTS,
    PIECE_OUTCOMES,
    PIECE_ROWS,
    PIECES,
    PIECES_OF_OUTCOMES,
    POLICY_CHANGE_DAYS,
    RetentionJob,
)
from understudy.ports.monitoring.retention_store import GrowingTable

DAY = 86_400.0
METRIC_DAYS = 90.0
OUTCOME_DAYS = 400.0
GUARDED = {
    "PolicyAudit": "policyaudit_guard",
    "RegistryAudit": "registryaudit_guard",
    "SubscriptionAudit": "subscriptionaudit_guard",
    "PolicyChange": "policychange_guard",
    "SpoolOffset": "spooloffset_guard",
}


class World(NamedTuple):
    database: asyncpg.Connection
    url: str
    growing: PostgresRetentionStore
    job: RetentionJob
    epoch: int
    champion: int
    challenger: int

    async def forget(self, table: GrowingTable, days: float, at_most: int = 1_000) -> int:
        return await self.growing.forget(table, days, at_most, epoch=self.epoch)

    async def rows(self, table: str) -> int:
        return int(await self.database.fetchval(f"SELECT count(*) FROM {table}"))

    async def age(self, table: str, column: str, days: float, where: str = "TRUE") -> None:
        """Make rows older than a hand could."""
        trigger = GUARDED.get(table)
        if trigger is not None:
            await self.database.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
        await self.database.execute(
            f"UPDATE {table} SET {column} = {column} - $1::float8 * INTERVAL '1 day' WHERE {where}", days
        )
        if trigger is not None:
            await self.database.execute(f"ALTER TABLE {table} ENABLE TRIGGER {trigger}")

    async def add_events(self, rollout_id: int, verdicts: list[str | None]) -> None:
        for verdict in verdicts:
            await self.database.execute(
                "INSERT INTO RolloutEvent (rollout_id, step, phase, verdict, reason, inputs, code_version)"
                """ VALUES ($1, 0, 'FAILED', $2, 'so it is', '{"strata": "long"}', '1')""",
                rollout_id,
                verdict,
            )


@pytest.fixture
async def world(database: asyncpg.Connection, database_url: str) -> World:
    ids = await two_versions(database)
    growing = PostgresRetentionStore(database_url, timeout_seconds=20)
    job = RetentionJob(
        PostgresWindowLog(database_url, timeout_seconds=20),
        PostgresMetricStore(database_url, timeout_seconds=20),
        growing,
        window_days=35,
        metric_days=METRIC_DAYS,
        input_days=30,
        outcome_days=OUTCOME_DAYS,
    )
    return World(database, database_url, growing, job, await lead(database_url), ids["6"], ids["7"])


# -- alerts ------------------------------------------------------------------------------------------------------------


def an_alert(action: AlertAction) -> AlertEvent:
    return AlertEvent(action, AlertKind.ROLLOUT_NEEDS_HUMAN, "test", "churn", "it waits", 1.7e9)


async def tell(world: World, days_ago: float, *actions: AlertAction, delivered: bool = True) -> None:
    for action in actions:
        await add_alert(world.database, an_alert(action))
        await world.database.execute(
            "UPDATE AlertOutbox SET created_at = now() - $1::float8 * INTERVAL '1 day',"
            " delivered_at = CASE WHEN $2 THEN now() - $1::float8 * INTERVAL '1 day' END"
            " WHERE id = (SELECT max(id) FROM AlertOutbox)",
            days_ago,
            delivered,
        )


async def actions_left(world: World) -> list[str]:
    rows = await world.database.fetch("SELECT action FROM AlertOutbox ORDER BY id")
    return [row["action"] for row in rows]


async def test_a_delivered_incident_that_is_over_goes_with_its_resolution_last(world):
    await tell(world, 31, AlertAction.TRIGGER, AlertAction.RESOLVE)

    first = await world.forget(GrowingTable.ALERTS, ALERT_DAYS)
    between = await actions_left(world)
    second = await world.forget(GrowingTable.ALERTS, ALERT_DAYS)

    assert (first, between, second, await actions_left(world)) == (1, ["resolve"], 1, [])


async def test_alerts_that_are_younger_or_changes_go_by_their_own_age(world):
    await tell(world, 31, AlertAction.CHANGE)
    await tell(world, 31, AlertAction.CHANGE, delivered=False)
    await tell(world, 29, AlertAction.CHANGE, AlertAction.TRIGGER, AlertAction.RESOLVE)

    await world.job.tick(world.epoch)

    assert await actions_left(world) == ["change", "trigger", "resolve"]


async def test_an_open_incident_stays_known_and_its_end_is_still_told(world):
    await tell(world, 100, AlertAction.TRIGGER)
    await tell(world, 90, AlertAction.RESOLVE)
    await tell(world, 80, AlertAction.TRIGGER)

    await world.job.tick(world.epoch)
    left = await actions_left(world)
    await add_alert(world.database, an_alert(AlertAction.RESOLVE))

    assert left == ["trigger"]
    assert await actions_left(world) == ["trigger", "resolve"]


async def test_what_is_not_delivered_of_an_open_incident_stays_until_it_is_given_up_and_told_again(world):
    await tell(world, 100, AlertAction.TRIGGER, AlertAction.TRIGGER, delivered=False)
    await world.job.tick(world.epoch)
    waiting = await actions_left(world)

    await world.database.execute("UPDATE AlertOutbox SET next_attempt_at = 'infinity'")
    await world.job.tick(world.epoch)

    assert (waiting, await actions_left(world)) == (["trigger", "trigger"], ["trigger"])


async def test_what_was_never_delivered_of_an_incident_that_is_over_goes(world):
    await tell(world, 100, AlertAction.TRIGGER, AlertAction.RESOLVE, delivered=False)

    for _ in range(2):
        await world.job.tick(world.epoch)

    assert await actions_left(world) == []


# -- the others --------------------------------------------------------------------------------------------------------


async def test_outcomes_go_by_when_they_came_and_one_that_is_sent_again_then_counts(world):
    await world.database.execute(
        "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at, received_at)"
        " SELECT 'order-' || n, 'churn', 'u', 'bought', 1, now() - INTERVAL '9 years', now() - n * INTERVAL '1 day'"
        " FROM generate_series(398, 403) AS n"
    )

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT event_id FROM OutcomeEvent ORDER BY event_id")
    assert [row["event_id"] for row in left] == ["order-398", "order-399"]
    again = "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at)"
    await world.database.execute(f"{again} VALUES ('order-403', 'churn', 'u', 'bought', 1, now())")
    assert await world.rows("OutcomeEvent") == 3


async def test_of_a_finished_rollout_the_last_verdict_stays_without_what_it_rested_on(world):
    old = await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=91)
    young = await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=89)
    waiting = await insert_rollout(world.database, "churn", world.champion, world.challenger)
    for rollout_id in (old, young, waiting):
        await world.add_events(rollout_id, [None, "ADVANCE", "ROLL_BACK", None])
    await world.age("RolloutEvent", "at", 200)

    await world.job.tick(world.epoch)

    rows = await world.database.fetch("SELECT rollout_id, verdict, inputs FROM RolloutEvent ORDER BY id")
    assert [tuple(row) for row in rows if row["rollout_id"] == old] == [(old, "ROLL_BACK", "{}")]
    assert [row["inputs"] for row in rows if row["rollout_id"] != old] == ['{"strata": "long"}'] * 8
    assert await world.rows("Rollout") == 3


async def test_finished_rollouts_go_after_two_years_but_a_models_newest_stays(world):
    oldest = await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=900)
    held = await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=890)
    newest = await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=800)
    await world.add_events(oldest, ["ROLL_BACK"])
    await world.database.execute("UPDATE ServingPolicy SET rollout_id = $1", held)

    await world.job.tick(world.epoch)

    left = [row["id"] for row in await world.database.fetch("SELECT id FROM Rollout ORDER BY id")]
    assert left == [held, newest]
    assert await world.rows("RolloutEvent") == 0


async def test_of_the_audit_two_years_stay_and_what_held_at_their_beginning(world):
    for weight in (5, 6, 7, 8):
        await world.database.execute(
            "UPDATE ServingPolicy SET challenger_version = $1, challenger_weight = $2", world.challenger, weight
        )
    await world.age("PolicyAudit", "changed_at", 800, "generation <= 3")
    await world.age("PolicyAudit", "changed_at", 700, "generation > 3")

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT generation FROM PolicyAudit ORDER BY id")
    assert [row["generation"] for row in left] == [3, 4, 5]


async def test_of_the_registrys_audit_two_years_stay(world):
    await world.database.execute("UPDATE ModelVersion SET timeout_ms = 400 WHERE id = $1", world.champion)
    await world.age("RegistryAudit", "changed_at", 800, "action = 'insert'")
    await world.age("RegistryAudit", "changed_at", 700, "action = 'update'")

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT action FROM RegistryAudit")
    assert [row["action"] for row in left] == ["update"]


async def test_of_the_audit_of_subscriptions_two_years_stay(world):
    await world.database.execute("INSERT INTO Subscription (name, receiver) VALUES ('ops', 'chat')")
    await world.database.execute("DELETE FROM Subscription")
    await world.age("SubscriptionAudit", "changed_at", 800, "action = 'insert'")
    await world.age("SubscriptionAudit", "changed_at", 700, "action = 'delete'")

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT action FROM SubscriptionAudit")
    assert [row["action"] for row in left] == ["delete"]


async def test_of_erasures_that_are_finished_two_years_stay_and_of_others_all(world):
    await world.database.execute(
        """INSERT INTO EntityErasure (digest, salt, erased_before, finished_at, actor, via, began_at, reason)
           SELECT repeat('a0', 32), CASE WHEN days IS NULL THEN '\\x00'::bytea END, now(),
                  now() - days * INTERVAL '1 day',
                  'dana', 'cli', now() - INTERVAL '900 days', days::text
           FROM unnest(ARRAY[800, 729, NULL]) AS days"""
    )

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT reason FROM EntityErasure ORDER BY id")
    assert [row["reason"] for row in left] == ["729", None]


async def test_the_audit_of_an_open_rollout_stays_however_old_it_is(world):
    await world.database.execute("UPDATE ServingPolicy SET shadow_percent = 50")
    rollout_id = await insert_rollout(world.database, "churn", world.champion, world.challenger)
    await world.age("Rollout", "started_at", 900, f"id = {rollout_id}")
    await world.age("PolicyAudit", "changed_at", 800)

    await world.job.tick(world.epoch)

    assert await world.rows("PolicyAudit") == 2


@pytest.mark.parametrize(
    ("statement", "age"),
    [
        ("DELETE FROM PolicyAudit", ("PolicyAudit", "changed_at", 729)),
        ("DELETE FROM RegistryAudit", ("RegistryAudit", "changed_at", 729)),
        ("DELETE FROM PolicyChange", ("PolicyChange", "changed_at", 29)),
        ("DELETE FROM PolicyChange WHERE source = 'policy'", ("PolicyChange", "changed_at", 9_999)),
        ("DELETE FROM SpoolOffset", ("SpoolOffset", "updated_at", 364)),
    ],
)
async def test_no_hand_deletes_what_age_does_not_let_go(world, statement, age):
    await world.database.execute("INSERT INTO SpoolOffset VALUES ('s', 1, 9)")
    table, column, days = age
    await world.age(table, column, days)
    before = await world.rows(table)

    with pytest.raises(asyncpg.CheckViolationError) as refused:
        await world.database.execute(statement)

    assert refused.value.hint
    assert await world.rows(table) == before


async def test_dead_letters_go_by_age_and_beyond_their_number_the_oldest_go(world):
    fill = (
        "INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, row, why, at)"
        " SELECT 's', $1, n, 'x', 'poison', now() - $2::float8 * INTERVAL '1 day' FROM generate_series(1, $3) AS n"
    )
    await world.database.execute(fill, 1, 91.0, 7)
    await world.database.execute(fill, 2, 89.0, MAX_DEAD_LETTERS + 30)

    by_age_and_number = await world.forget(GrowingTable.DEAD_LETTERS, DEAD_LETTER_DAYS, 25)
    rest = await world.forget(GrowingTable.DEAD_LETTERS, DEAD_LETTER_DAYS, 25)

    assert (by_age_and_number, rest) == (25, 12)
    assert await world.rows("PredictionDeadLetter") == MAX_DEAD_LETTERS
    assert await world.database.fetchval("SELECT min(byte_offset) FROM PredictionDeadLetter WHERE segment = 2") == 31


async def test_notifications_go_once_they_are_old_and_over(world):
    await world.database.execute(
        """INSERT INTO Notification (subscription_id, event_id, kind, severity, payload, created_at, delivered_at,
                                     next_attempt_at)
           SELECT id, gen_random_uuid(), 'drift.found', 'warning', '{}', now() - INTERVAL '1 day' * age,
                  CASE WHEN became = 'delivered' THEN now() END,
                  CASE WHEN became = 'given up' THEN 'infinity' ELSE now() END
           FROM (VALUES (1, 31, 'delivered'), (2, 31, 'given up'), (3, 31, 'waits'), (4, 29, 'delivered')) AS
                one (id, age, became)"""
    )

    first = await world.forget(GrowingTable.NOTIFICATIONS, NOTIFICATION_DAYS, 1)
    second = await world.forget(GrowingTable.NOTIFICATIONS, NOTIFICATION_DAYS)

    assert (first, second) == (1, 1)
    left = await world.database.fetch("SELECT subscription_id FROM Notification ORDER BY 1")
    assert [row[0] for row in left] == [3, 4]


async def test_a_spool_that_somebody_still_has_keeps_its_offset(world):
    await world.database.execute("INSERT INTO SpoolOffset VALUES ('gone', 1, 9), ('idle', 1, 9), ('busy', 1, 9)")
    await world.age("SpoolOffset", "updated_at", 400, "spool_id <> 'busy'")
    store = PostgresPredictionStore(world.url, timeout_seconds=10)
    assert await store.committed("idle") == (1, 9)
    await store.close()

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT spool_id FROM SpoolOffset ORDER BY 1")
    assert [row["spool_id"] for row in left] == ["busy", "idle"]


async def test_of_policy_changes_those_of_versions_go_and_generations_never_go_back(world):
    await world.database.execute("DELETE FROM ServingPolicy")
    await world.age("PolicyChange", "changed_at", 40)
    await world.database.execute("UPDATE ModelVersion SET timeout_ms = 400 WHERE version = '7'")

    await world.job.tick(world.epoch)

    left = await world.database.fetch("SELECT source FROM PolicyChange ORDER BY source")
    assert [row["source"] for row in left] == ["policy", f"version:{world.challenger}"]
    await world.database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('churn', $1)", world.champion
    )
    assert await world.database.fetchval("SELECT generation FROM ServingPolicy") == 3


async def test_a_row_that_somebody_holds_is_not_waited_for(world):
    await world.age("PolicyChange", "changed_at", 40)
    holder = await asyncpg.connect(world.url, timeout=10)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("UPDATE ModelVersion SET timeout_ms = 400 WHERE version = '7'")

    gone = await world.forget(GrowingTable.POLICY_CHANGES, POLICY_CHANGE_DAYS)

    await transaction.rollback()
    await holder.close()
    assert gone == 1
    assert await world.forget(GrowingTable.POLICY_CHANGES, POLICY_CHANGE_DAYS) == 1


async def test_windows_of_a_rollout_that_waits_stay_for_its_plans_time_more_and_go_a_day_at_a_time(world):
    rollout_id = await insert_rollout(world.database, "churn", world.champion, world.challenger)
    # 35 days, and six steps of a day at most with half an hour at their end, cut at midnight: 41 or 42 days
    for age in (34, 36, 40.9, 42.2, 50):
        for owner in (rollout_id, 0):
            await world.database.execute(
                """INSERT INTO PredictionWindow (model_version_id, window_start, role, rollout_id, policy_generation,
                                                 shipper, calls, errors, counts)
                   VALUES ($1, now() - $2::float8 * INTERVAL '1 day', 'champion', $3, 1, 'a', 1, 0, '{}')""",
                world.champion,
                age,
                owner,
            )

    await world.job.tick(world.epoch)

    ages = "SELECT round(extract(epoch FROM now() - window_start) / 86400, 1)::float8 AS age FROM PredictionWindow"
    of_rollout = await world.database.fetch(f"{ages} WHERE rollout_id <> 0 ORDER BY 1")
    others = await world.database.fetch(f"{ages} WHERE rollout_id = 0 ORDER BY 1")
    assert [row["age"] for row in of_rollout] == [34.0, 36.0, 40.9]
    assert [row["age"] for row in others] == [34.0]


# -- the tick ----------------------------------------------------------------------------------------------------------

BACKLOGS = {
    GrowingTable.ALERTS: (
        """INSERT INTO AlertOutbox (dedup_key, action, severity, payload, created_at, delivered_at)
           SELECT 'k', 'change', 'info', '{}', now() - INTERVAL '40 days', now() - INTERVAL '40 days'
           FROM generate_series(1, $1)""",
        PIECE_ROWS * PIECES,
    ),
    GrowingTable.OUTCOMES: (
        """INSERT INTO OutcomeEvent (event_id, model_name, entity_id, name, value, occurred_at, received_at)
           SELECT n::text, 'churn', 'u', 'bought', 1, now(), now() - INTERVAL '401 days'
           FROM generate_series(1, $1) AS n""",
        PIECE_OUTCOMES * PIECES_OF_OUTCOMES,
    ),
    GrowingTable.ROLLOUT_EVENTS: (
        """INSERT INTO RolloutEvent (rollout_id, step, phase, reason, code_version)
           SELECT (SELECT max(id) FROM Rollout), 0, 'FAILED', 'x', '1' FROM generate_series(1, $1)""",
        PIECE_EVENTS * PIECES,
    ),
    GrowingTable.DEAD_LETTERS: (
        """INSERT INTO PredictionDeadLetter (spool_id, segment, byte_offset, row, why, at)
           SELECT 's', 1, n, 'x', 'poison', now() - INTERVAL '91 days' FROM generate_series(1, $1) AS n""",
        PIECE_ROWS * PIECES,
    ),
    GrowingTable.SPOOL_OFFSETS: (
        """INSERT INTO SpoolOffset SELECT n::text, 1, 1, now() - INTERVAL '367 days'
           FROM generate_series(1, $1) AS n""",
        PIECE_ROWS * PIECES,
    ),
}


@pytest.mark.parametrize("table", BACKLOGS, ids=str)
async def test_of_a_large_backlog_a_tick_takes_a_bounded_number_of_rows(world, table):
    await insert_rollout(world.database, "churn", world.champion, world.challenger, finished_days_ago=91)
    statement, most = BACKLOGS[table]
    await world.database.execute(statement, most + 10)

    await world.job.tick(world.epoch)
    left = await world.rows(table)
    await world.job.tick(world.epoch)

    assert (left, await world.rows(table)) == (10, 0)


async def test_a_large_audit_goes_a_bounded_number_of_rows_at_a_time(world):
    most = PIECE_ROWS * PIECES
    await world.database.execute("ALTER TABLE PolicyAudit DISABLE TRIGGER policyaudit_guard")
    await world.database.execute(
        "INSERT INTO PolicyAudit (model_name, generation, actor, via, action, changed_at)"
        " SELECT 'fraud', n, 'a', 'b', 'update', now() - INTERVAL '800 days' FROM generate_series(1, $1) AS n",
        most + 11,
    )

    ticks = []
    for _ in range(2):
        await world.job.tick(world.epoch)
        ticks.append(await world.database.fetchval("SELECT count(*) FROM PolicyAudit WHERE model_name = 'fraud'"))

    assert ticks == [11, 1]


@pytest.mark.parametrize("table", GrowingTable, ids=str)
async def test_a_monitor_whose_lease_is_over_deletes_nothing(world, table):
    await lead(world.url)

    with pytest.raises(LeadershipLost):
        await world.forget(table, 0.0)


async def test_a_table_that_cannot_be_deleted_from_keeps_no_other_from_its_turn(world):
    await world.database.execute(BACKLOGS[GrowingTable.ALERTS][0], 3)
    await world.database.execute(BACKLOGS[GrowingTable.SPOOL_OFFSETS][0], 3)
    await world.database.execute(
        """CREATE FUNCTION no() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$;
           CREATE TRIGGER no BEFORE DELETE ON AlertOutbox FOR EACH STATEMENT EXECUTE FUNCTION no()"""
    )

    with pytest.raises(RegistryUnavailable, match="old rows of AlertOutbox cannot be deleted: no"):
        await world.job.tick(world.epoch)

    assert (await world.rows("AlertOutbox"), await world.rows("SpoolOffset")) == (3, 0)


async def test_warm_ups_that_proxies_were_asked_for_go_an_hour_after_their_deadline_with_their_answers(world):
    for seconds_ago in (7_000, 3_000):
        await world.database.execute(
            "INSERT INTO WarmUpRequest (version_id, instances, deadline) VALUES ($1, '{web-1:7}', now())",
            world.challenger,
        )
        await world.database.execute(
            "INSERT INTO WarmUpAnswer (request_id, instance, answered) SELECT max(id), 'web-1:7', 0 FROM WarmUpRequest"
        )
        await world.database.execute(
            "UPDATE WarmUpRequest SET asked_at = asked_at - make_interval(secs => $1),"
            " deadline = deadline - make_interval(secs => $1) WHERE id = (SELECT max(id) FROM WarmUpRequest)",
            seconds_ago,
        )

    await world.job.tick(world.epoch)

    assert (await world.rows("WarmUpRequest"), await world.rows("WarmUpAnswer")) == (1, 1)
