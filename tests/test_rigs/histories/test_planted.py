"""Faults planted in a real Postgres: operators' statements are recorded, what the database then holds is checked."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg
import pytest
from e2e.stack import register

from rigs.histories.by_sql import BySql
from rigs.histories.check import check
from rigs.histories.collect import snapshot
from rigs.histories.drawing import VERSIONS
from rigs.histories.record import Kind, Operation, Record, Way

UNAUDITED = "ALTER TABLE ServingPolicy DISABLE TRIGGER servingpolicy_record"
TWICE = """
    CREATE TRIGGER servingpolicy_record_again AFTER UPDATE ON ServingPolicy
    FOR EACH ROW EXECUTE FUNCTION understudy_record_policy()
"""
# It brings back the champion of the first policy instead of the one before the newest move.
FURTHER_BACK = """
    CREATE OR REPLACE FUNCTION understudy_rollback(model TEXT, why TEXT DEFAULT NULL) RETURNS JSONB
    LANGUAGE plpgsql AS $$
    DECLARE
        policy ServingPolicy;
    BEGIN
        UPDATE ServingPolicy SET champion_version = (
            SELECT (after ->> 'champion_version')::bigint FROM PolicyAudit ORDER BY id LIMIT 1
        ) WHERE model_name = model RETURNING * INTO policy;
        RETURN jsonb_build_object('did', 'previous champion back', 'generation', policy.generation);
    END $$
"""
# A read and a write without a lock between them, as a program that computes the new value itself makes them.
LOSES = """
    CREATE FUNCTION forget_an_update() RETURNS TRIGGER LANGUAGE plpgsql AS $$
    BEGIN
        NEW.shadow_percent := OLD.shadow_percent - 1;
        RETURN NEW;
    END $$;
    CREATE TRIGGER a_forget BEFORE UPDATE ON ServingPolicy FOR EACH ROW EXECUTE FUNCTION forget_an_update()
"""


class Operators:
    """Two operators with a prompt each, and what they saw."""

    def __init__(self, database_url: str, ids: Mapping[str, int]) -> None:
        self._url, self._ids = database_url, ids
        self._prompts = [BySql(database_url, ids) for _ in range(2)]
        self.records: list[Record] = []

    async def do(self, client: int, kind: Kind, **asked: Any) -> None:
        operation = Operation(client, len(self.records), kind, Way.SQL, asked)
        invoked = time.monotonic()
        answer = await self._prompts[client].carry_out(operation)
        self.records.append(Record(operation, invoked, time.monotonic(), answer.ended, answer.said))

    async def found(self) -> str:
        for prompt in self._prompts:
            prompt.close()
        history = await snapshot(self._url, self._ids, 1, self.records)
        return "; ".join(map(str, check(history)))


@pytest.fixture
async def operators(database: asyncpg.Connection, database_url: str) -> Operators:
    ids = {label: await register(database_url, int(label), [40_000]) for label in VERSIONS}
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version, guard) VALUES ('visits', $1, 'off')", ids["1"]
    )
    return Operators(database_url, ids)


async def a_morning(operators: Operators) -> None:
    """1 → 2 → 3 by hand, a share, and what operators do besides."""
    await operators.do(0, Kind.SET, changes={"champion": "2"})
    await operators.do(1, Kind.SET, changes={"champion": "3"})
    await operators.do(1, Kind.READ_POLICY)
    await asyncio.gather(operators.do(0, Kind.ADD, add=7), operators.do(1, Kind.ADD, add=11))
    await operators.do(0, Kind.SET, changes={"challenger": "4", "challenger_weight": 20}, expected=4)
    await operators.do(0, Kind.SET, changes={"challenger_weight": 101})
    await operators.do(1, Kind.ABANDON, changes={"champion": "1"})
    await operators.do(0, Kind.RETIRE, version="1")
    await operators.do(0, Kind.SET, changes={"champion": "1"})
    await operators.do(1, Kind.RESTORE, version="1")
    await operators.do(0, Kind.READ_AUDIT)


async def test_what_operators_do_to_a_right_database_keeps_every_promise(operators):
    await a_morning(operators)
    await operators.do(1, Kind.SET, changes={"champion": "1", "challenger_weight": 0})
    await operators.do(0, Kind.ROLL_BACK)
    await operators.do(1, Kind.ROLL_BACK)

    assert await operators.found() == ""
    assert [record.answer["did"][:8] for record in operators.records[-2:]] == ["previous", "nothing:"]


@pytest.mark.parametrize(
    ("planted", "operation", "found"),
    [
        ((UNAUDITED,), (Kind.ADD, {"add": 3}), "the policy is not what generation"),
        ((TWICE,), (Kind.ADD, {"add": 3}), "a row is doubled"),
        ((FURTHER_BACK,), (Kind.ROLL_BACK, {}), "the model says"),
        ((LOSES,), (Kind.ADD, {"add": 3}), "the model says"),
    ],
    ids=["audit row missing", "audit row doubled", "rollback of another move", "lost update"],
)
async def test_a_fault_that_is_planted_in_the_database_is_found(
    database: asyncpg.Connection,
    operators: Operators,
    planted: Sequence[str],
    operation: tuple[Kind, dict[str, Any]],
    found: str,
):
    await operators.do(0, Kind.SET, changes={"champion": "2"})
    await operators.do(1, Kind.SET, changes={"champion": "3"})
    for statement in planted:
        await database.execute(statement)

    await operators.do(0, operation[0], **operation[1])

    assert found in await operators.found()


async def test_a_read_from_a_database_that_lags_behind_is_found(operators):
    await operators.do(0, Kind.ADD, add=3)
    await operators.do(1, Kind.READ_POLICY)
    *_, stale = operators.records
    await operators.do(0, Kind.ADD, add=4)
    later = time.monotonic()
    operators.records[1] = Record(stale.operation, later, later + 0.01, stale.ended, stale.answer)

    assert "read a policy older than" in await operators.found()
