"""The monitor that leads dies in the middle of a rollout: the other one goes on from the stored state."""

import asyncio
import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import pytest
from e2e.stack import Process, Stack, a_stack, register, sql

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.plan import RolloutPlan, Step, Strategy
from understudy.core.rollout.state import Phase
from understudy.ports.registry.registry import Actor
from understudy.ports.rollout.rollout_store import NewRollout

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]
DWELL_SECONDS = 3.0
WEIGHTS = [10, 20, 30, 40, 50, 60, 100]
TAKEOVER_SECONDS = 10.0
TICK_SECONDS = 0.5
LATE_SECONDS = 1.5
"""What a tick on a busy machine may come late, and a write after its look; a step that is applied twice follows by less
than what is left of a step's own time."""
# Rolling: each step only takes its time, so no traffic is needed.
PLAN = RolloutPlan(
    tuple(Step(weight, 0 if weight == 100 else DWELL_SECONDS, 0) for weight in WEIGHTS),
    Strategy.ROLLING,
    keep_warm_seconds=1,
)
CHANGES = """
    SELECT extract(epoch FROM changed_at)::float8 AS at, (after ->> 'challenger_weight')::int AS weight,
           (after ->> 'champion_version')::bigint AS champion
    FROM PolicyAudit WHERE via = 'rollout' ORDER BY id
"""


def start_monitor(stack: Stack, name: str, folder: Path) -> None:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": str(TICK_SECONDS),
        "UNDERSTUDY_MONITOR_METRICS_PORT": str(free_port()),
    }
    arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
    stack.processes[name] = Process(name, arguments, folder, environment)


async def leader_of(stack: Stack) -> str:
    """Return the monitor that holds the lease; a holder's name has its process id in it."""
    deadline = time.monotonic() + 30
    while True:
        rows = await sql(stack.database_url, "SELECT holder FROM MonitorLease")
        for name in ("first", "second"):
            if rows and f":{stack.processes[name].pid}:" in rows[0]["holder"]:
                return name
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def reached(store: PostgresRolloutStore, rollout_id: int, weight: int) -> None:
    deadline = time.monotonic() + 60
    while (await store.view(rollout_id)).record.state.weight_percent < weight:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)


async def finished(store: PostgresRolloutStore, rollout_id: int) -> Phase:
    deadline = time.monotonic() + 90
    while not (phase := (await store.view(rollout_id)).record.state.phase).is_final:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.2)
    return phase


@pytest.mark.parametrize("fault", ["killed", "frozen"])
async def test_the_standby_goes_on_within_10_seconds_and_no_step_is_applied_twice(tmp_path, database_url, fault):
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    with a_stack(tmp_path, database_url) as stack:
        equal = stack.start_model("visits:1", "visits:2")
        champion = await register(database_url, 1, [equal])
        challenger = await register(database_url, 2, [equal])
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion
        )
        stack.start_proxy()  # a step waits for somebody who confirms it
        for name in ("first", "second"):
            start_monitor(stack, name, tmp_path)
        leader = await leader_of(stack)
        rollout = await store.start(NewRollout("visits", "2", PLAN, "s", 1_000), Actor("test", "test"))
        await reached(store, rollout.id, 30)

        os.kill(stack.processes[leader].pid, signal.SIGKILL if fault == "killed" else signal.SIGSTOP)
        if fault == "frozen":
            await reached(store, rollout.id, 50)
            os.kill(stack.processes[leader].pid, signal.SIGCONT)
        phase = await finished(store, rollout.id)
        changes = await sql(database_url, CHANGES)

    assert phase is Phase.SUCCEEDED
    steps = [row for row in changes if row["weight"] > 0]
    assert [row["weight"] for row in steps] == WEIGHTS[:-1]
    assert next(row["champion"] for row in changes if row["weight"] == 0) == challenger
    pauses = [later["at"] - earlier["at"] for earlier, later in pairwise(steps)]
    print(f"leader {fault}: longest pause between steps {max(pauses):.1f} s, of which {DWELL_SECONDS:.0f} s by plan")
    assert min(pauses) >= DWELL_SECONDS - LATE_SECONDS  # it counts from look to look, and a write comes after a look
    assert max(pauses) <= DWELL_SECONDS + TAKEOVER_SECONDS + LATE_SECONDS
