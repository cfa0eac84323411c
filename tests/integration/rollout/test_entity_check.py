"""A challenger that fails one entity wholly: named from the log, over a real Postgres, to an operator alone."""

import asyncpg
import pytest
from command import CommandLine
from worlds.rollout import TWINS, PastRollout

from understudy.adapters.postgres.connections.checkup import examine_guards
from understudy.core.rollout.plan import RolloutPlan, Step
from understudy.core.rollout.state import Kind, Phase, WaitingFor
from understudy.ports.rollout.rollout_store import RolloutView
from understudy.rollout.verdicts.replay import Replay, judged_again

pytestmark = pytest.mark.timeout(120)
PLAN = RolloutPlan((Step(10, 3_000, 1_000), Step(100, 0, 0)), canary_limits={"detectable_ratio": 3})
# $1 champion, $2 challenger, $3 rollout, $4 when. The champion answers in the place of the challenger.
_CALLS = """
    INSERT INTO PredictionLog (model_version_id, assigned_version_id, rollout_id, entity_id, input_hash, prediction,
                               latency_ms, predicted_at, prediction_id, role, reason, status, error_code)
    SELECT CASE WHEN fails THEN $1::bigint ELSE $2 END, $2::bigint, $3::bigint, entity_id, lpad(call::text, 64, '0'),
           '{}', 5, to_timestamp($4::float8) + call * INTERVAL '7 seconds', gen_random_uuid(), 'challenger', 'bucket',
           CASE WHEN fails THEN 'fallback' ELSE 'ok' END, CASE WHEN fails THEN 'E503' END
    FROM (SELECT CASE WHEN number = 0 THEN 'acme' ELSE 'shop-' || number END AS entity_id, number = 0 AS fails, call
          FROM generate_series(0, 19) AS number, generate_series(0, 2) AS call) AS asked
"""
_CALLS_BEFORE = """
    INSERT INTO PredictionLog (model_version_id, assigned_version_id, entity_id, input_hash, prediction, latency_ms,
                               predicted_at, prediction_id, role, reason, status)
    SELECT $1::bigint, $1::bigint, 'acme', lpad(call::text, 64, '0'), '{}', 5,
           to_timestamp($2::float8) - call * INTERVAL '1 second', gen_random_uuid(), 'champion', 'bucket', 'ok'
    FROM generate_series(1, 40) AS call
"""


class FailingTenant(PastRollout):
    """A rollout whose challenger fails ``acme``, and nobody else."""

    async def served_acme_before(self) -> None:
        await self._database.execute(_CALLS_BEFORE, self.versions["6"], self.store.now)

    async def minutes(self, most: int) -> RolloutView:
        """Let minutes pass, until the rollout waits or so many have."""
        for _ in range(most):
            began = self.store.now
            await self._database.execute(_CALLS, self.versions["6"], self.versions["7"], self.id, began)
            await self.entities.tick(None)  # type: ignore[arg-type]  # it writes nothing
            await self.go_on(1)
            view = await self.store.view(self.id)
            if view.record.state.phase is Phase.WAITING:
                break
        return view


@pytest.fixture
async def tenant(database: asyncpg.Connection, database_url: str) -> FailingTenant:
    world = FailingTenant(database, database_url, TWINS, seconds_ago=4_000)
    await world.begin(PLAN)
    await world.served_acme_before()
    await world.go_on(1)
    return world


async def test_one_entity_that_fails_holds_the_step_is_named_and_told_once(
    tenant: FailingTenant, database: asyncpg.Connection, understudy: CommandLine
):
    began = tenant.store.now
    waits = await tenant.minutes(15)
    shown = await understudy.beside("rollout", "show", "churn")
    as_json = (await understudy.beside("rollout", "show", "churn", "--json")).json
    state = waits.record.state

    assert (state.phase, state.waiting_for) == (Phase.WAITING, WaitingFor.TIME)
    assert waits.read_at - began <= 15 * 60
    assert waits.policy is not None
    assert waits.policy.weight_percent == 10
    assert state.reason.startswith("stops at 10 %: 1 entity fails 100 % of its calls (")
    assert "on the champion 0 of 40 failed in the six hours before" in state.reason
    assert shown.out.count("for example prediction") == 3
    assert "entity acme: " in shown.out
    assert "→ to go on without them: understudy rollout promote churn" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    assert len(as_json["events"][-1]["entities"]) == 1
    assert "acme" not in str(as_json)
    again = [found for _, found in judged_again(await tenant.store.events(tenant.id)) if isinstance(found, Replay)]
    assert [found.agrees for found in again] == [True] * len(again)
    assert len(again[-1].decision.entities) == 1
    told = await database.fetch("SELECT dedup_key, action FROM AlertOutbox WHERE action <> 'change'")
    assert [(row[0].rpartition("/")[2], row[1]) for row in told] == [("rollout_stalled", "trigger")]


async def test_no_stored_row_names_the_entity_and_an_erased_one_is_shown_by_its_new_name(
    tenant: FailingTenant, database: asyncpg.Connection, understudy: CommandLine
):
    await tenant.minutes(15)

    await database.execute("UPDATE PredictionLog SET entity_id = 'erased-1' WHERE entity_id = 'acme'")
    shown = await understudy.beside("rollout", "show", "churn")

    for table in ("Rollout", "RolloutEvent", "AlertOutbox"):
        assert await database.fetchval(f"SELECT count(*) FROM {table} AS kept WHERE kept::text LIKE '%acme%'") == 0
    assert "entity erased-1: " in shown.out
    assert "acme" not in shown.out


async def test_an_operator_who_knows_of_it_is_not_told_again_by_this_monitor_nor_by_the_next(
    tenant: FailingTenant, database: asyncpg.Connection, understudy: CommandLine
):
    await tenant.minutes(15)
    resumed = await understudy.beside("rollout", "resume", "churn", "--reason", "a trial account", "--yes")

    same_monitor = await tenant.minutes(3)
    tenant.starts_anew()
    next_monitor = await tenant.minutes(3)

    assert resumed.code == 0
    assert same_monitor.record.state.phase is Phase.PROGRESSING
    assert next_monitor.record.state.phase is Phase.PROGRESSING
    assert await database.fetchval("SELECT count(*) FROM AlertOutbox WHERE action = 'trigger'") == 1


async def test_a_guard_waits_as_well_and_doctor_says_why(
    database: asyncpg.Connection, database_url: str, understudy: CommandLine
):
    world = FailingTenant(database, database_url, TWINS, seconds_ago=4_000)
    await world.begin_by_hand("challenger_version = {}, challenger_weight = 10")
    await world.served_acme_before()
    await world.go_on(1)

    waits = await world.minutes(15)
    shown = await understudy.beside("rollout", "show", "churn")
    (guard,) = await examine_guards(database_url)

    assert waits.record.state.kind is Kind.GUARD
    assert waits.record.state.phase is Phase.WAITING
    assert "entity acme: " in shown.out
    assert "rollout promote" not in shown.out
    assert guard.failure is not None
    assert "1 entity fails 100 % of its calls" in guard.failure
