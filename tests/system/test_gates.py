"""A gate over HTTP under real monitors: killed between the question and its answer, and the next one asks the same."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import orjson
import pytest
from e2e.stack import Process, Stack, a_stack, register, sql
from loopback.receiver import KILL, ReceiverServer

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import Gate, GatePlace, RolloutPlan, Step, Strategy
from understudy.core.rollout.state import Phase
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout

pytestmark = pytest.mark.timeout(180)
COMMAND = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TOKEN = "T0K3N-of-the-gate"
# Rolling: its steps only take their time, so no traffic is needed.
PLAN = RolloutPlan(
    (Step(10, 0, 0), Step(100, 0, 0)),
    Strategy.ROLLING,
    keep_warm_seconds=1,
    gates={GatePlace.BEFORE_START: Gate(http="quality"), GatePlace.BEFORE_PROMOTION: Gate(http="quality")},
)
CHANGES = "SELECT (after ->> 'challenger_weight')::int AS weight FROM PolicyAudit WHERE via = 'rollout' ORDER BY id"


def start_monitor(stack: Stack, name: str, folder: Path, address: str) -> Process:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "0.5",
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(free_port()),
        "UNDERSTUDY_GATES": f"quality={address}/ask/{TOKEN}",
        "UNDERSTUDY_GATE_SECRET": SECRET,
    }
    process = Process(name, COMMAND, folder, environment)
    stack.processes[name] = process
    return process


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def is_led_by(database_url: str, monitor: Process) -> bool:
    rows = await sql(database_url, "SELECT holder FROM MonitorLease")
    return any(f":{monitor.pid}:" in row["holder"] for row in rows)


async def is_over(store: PostgresRolloutStore, rollout_id: int) -> bool:
    return (await store.view(rollout_id)).record.state.phase.is_final


async def test_a_monitor_that_is_killed_before_it_stores_a_pass_is_followed_by_one_that_asks_the_same_and_steps_once(
    tmp_path, database_url
):
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    async with ReceiverServer() as service:
        with a_stack(tmp_path, database_url) as stack:
            equal = stack.start_model("visits:1", "visits:2")
            champion = await register(database_url, 1, [equal])
            await register(database_url, 2, [equal])
            await sql(
                database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion
            )
            stack.start_proxy()  # it confirms the steps
            first = start_monitor(stack, "first", tmp_path, service.url)
            await until(lambda: is_led_by(database_url, first), 30)
            second = start_monitor(stack, "second", tmp_path, service.url)
            service.victim = first.pid
            service.script = [(503, "", b""), KILL, (200, "", b""), (200, "", b"")]
            rollout = await store.start(NewRollout("visits", "2", PLAN, "s", 1_000), Actor("test", "test"))
            await until(lambda: is_over(store, rollout.id), 90)
            state = (await store.view(rollout.id)).record.state
            changes = [row["weight"] for row in await sql(database_url, CHANGES)]
            log = first.log.read_text() + second.log.read_text()

    asked = [orjson.loads(body) for _, body in service.requests]
    keys = [headers["webhook-id"] for headers, _ in service.requests]
    assert state.phase is Phase.SUCCEEDED
    assert [one["place"] for one in asked] == ["before_start"] * 3 + ["before_promotion"]
    assert keys == [one["id"] for one in asked]
    assert len({*keys[:3]}) == 1
    assert asked[0] == asked[1] == asked[2]
    assert changes.count(10) == 1
    assert TOKEN not in log
    assert SECRET not in log
