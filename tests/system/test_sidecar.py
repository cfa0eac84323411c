"""Model servers that only proxies reach, one beside each: they warm a version up, and the monitor judges what they say.

As far as model servers go each process has a network of its own, by a setting of the product:
``UNDERSTUDY_ENDPOINT_ALLOW`` lets it connect to the loopback address of its own pod and to no other. That needs neither
root nor a namespace.
"""

import asyncio
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from command import CommandLine
from e2e.load import Connection
from e2e.stack import VISITS, Process, Stack, a_stack, register, sql, wait_for_port
from system.test_rollouts import begun, body_of, ended

from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.postgres.rollout.rollouts import PostgresRolloutStore
from understudy.core.rollout.state import Phase, WaitingFor

pytestmark = pytest.mark.timeout(300)
ELSEWHERE = "10.0.0.0/8"
"""What the monitor and the command line may connect to: none of the pods."""
PODS = {"web-a": "127.0.0.2", "web-b": "127.0.0.3"}
PLAN = orjson.dumps(
    {
        "steps": [
            {"weight_percent": 50, "dwell_seconds": 3, "min_requests": 0},
            {"weight_percent": 100, "dwell_seconds": 0, "min_requests": 0},
        ],
        "strategy": "rolling",
        "keep_warm_seconds": 1,
    }
)
ENTITIES = 120


def start_sidecar(stack: Stack, pod: str, port: int) -> None:
    """Start the model server of a pod, which serves both versions."""
    options = ("--serve", "visits:1", "--serve", "visits:2", "--host", PODS[pod], "--port", str(port))
    arguments = ["-m", "understudy.entrypoints.modelserver", *options]
    stack.processes[f"sidecar of {pod}"] = Process(f"sidecar-{pod}", arguments, stack.folder)


def start_pod(stack: Stack, pod: str, port: int) -> int:
    """Start a model server and the proxy that alone reaches it, and return the proxy's port."""
    start_sidecar(stack, pod, port)
    wait_for_port(port, host=PODS[pod])
    state = stack.folder / pod
    return stack.start_proxy(pod, instance=pod, state_dir=state, endpoint_allow=f"{PODS[pod]}/32", workers=1)


def start_monitor(stack: Stack) -> None:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "1",
        "UNDERSTUDY_MONITOR_METRICS_PORT": "0",
        "UNDERSTUDY_ENDPOINT_ALLOW": ELSEWHERE,
    }
    arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
    stack.processes["monitor"] = Process("monitor", arguments, stack.folder, environment)


async def register_both(database_url: str, port: int, *pods: str) -> None:
    """Make version 1 of ``visits`` the champion; both versions are served beside each proxy."""
    for label in (1, 2):
        named = orjson.dumps({"version": str(label)}).decode()
        version_id = await register(database_url, label, [], backend=named)
        for pod in pods:
            target = f"{PODS[pod]}:{port}"
            await sql(
                database_url, "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", version_id, target
            )
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version, input_sample_percent)"
        " SELECT 'visits', id, 100 FROM ModelVersion WHERE version = '1'",
    )


async def start_rollout(understudy: CommandLine, folder: Path) -> None:
    (folder / "plan.json").write_bytes(PLAN)
    start = ("rollout", "start", "visits", "2", "--plan", f"@{folder / 'plan.json'}", "--reason", "weekly", "--yes")
    started = await understudy.beside(*start, UNDERSTUDY_ENDPOINT_ALLOW=ELSEWHERE)
    assert started.code == 0, started


async def live(database_url: str) -> list[str]:
    return [row["instance"] for row in await sql(database_url, "SELECT instance FROM ProxyInstance ORDER BY 1")]


async def until_seen(database_url: str, proxies: int) -> None:
    """Wait for the first reports of so many proxies, which a loaded machine may delay by one turn: 10 seconds."""
    give_up = time.monotonic() + 90
    while len(await live(database_url)) < proxies:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.2)


async def count(database_url: str, condition: str = "TRUE") -> int:
    ((number,),) = await sql(database_url, f"SELECT count(*) FROM PredictionLog WHERE {condition}")
    return int(number)


async def until_logged(database_url: str, calls: int) -> None:
    give_up = time.monotonic() + 90
    while await count(database_url) < calls:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.2)


async def state_of(database_url: str) -> Any:
    ((state,),) = await sql(database_url, "SELECT state::text FROM Rollout ORDER BY id DESC LIMIT 1")
    return orjson.loads(state)


async def test_a_version_that_only_the_proxy_reaches_is_warmed_up_through_it_takes_its_share_and_becomes_champion(
    tmp_path: Path, database_url: str
):
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    understudy = CommandLine(database_url)
    port = free_port()
    await register_both(database_url, port, "web-a")
    with a_stack(tmp_path, database_url) as stack, ExitStack() as stopping:
        callers = stopping.enter_context(closing(Connection("127.0.0.1", start_pod(stack, "web-a", port))))
        for number in range(ENTITIES):
            assert (await callers.post(VISITS, body_of(number))).status == 200
        await until_logged(database_url, ENTITIES)
        await until_seen(database_url, 1)

        checked = await understudy.beside("version", "check", "visits", "2", UNDERSTUDY_ENDPOINT_ALLOW=ELSEWHERE)
        doctor = await understudy.beside("doctor", UNDERSTUDY_ENDPOINT_ALLOW=ELSEWHERE)
        await start_rollout(understudy, tmp_path)
        before = await count(database_url)
        start_monitor(stack)
        rollout_id = await store.latest_id("visits")
        await begun(store, rollout_id)
        for number in range(ENTITIES, 2 * ENTITIES):
            assert (await callers.post(VISITS, body_of(number))).status == 200
        view = await ended(store, rollout_id)
        events = [event.reason for event in await store.events(rollout_id)]
        await until_logged(database_url, 2 * ENTITIES)
        of_challenger = await count(database_url, "role = 'challenger' AND status = 'ok'")

    assert checked.code == 0, checked
    assert f"127.0.0.2:{port} is reached through 1 live proxy, and not from here" in checked.said
    assert "5 example calls answered through 1 live proxy" in checked.said
    assert "visits 1 champion reached through proxies: ready through 1 live proxy" in doctor.said
    assert view.record.state.phase is Phase.SUCCEEDED, events
    (began,) = [reason for reason in events if "the warm-up passed through 1 live proxy" in reason]
    assert f"in {ENTITIES} logged calls that were sent again" in began
    assert of_challenger > 0
    # Neither example calls nor those that were sent again are callers': none was logged.
    assert before == ENTITIES
    assert await count(database_url) == 2 * ENTITIES


async def test_a_proxy_whose_own_sidecar_is_dead_holds_the_rollout_is_named_and_lets_it_go_on_once_it_is_back(
    tmp_path: Path, database_url: str
):
    store = PostgresRolloutStore(database_url, timeout_seconds=5)
    understudy = CommandLine(database_url)
    port = free_port()
    await register_both(database_url, port, "web-a", "web-b")
    with a_stack(tmp_path, database_url) as stack:
        for pod in PODS:
            start_pod(stack, pod, port)
        await until_seen(database_url, len(PODS))
        at_first = await understudy.beside("version", "check", "visits", "2", UNDERSTUDY_ENDPOINT_ALLOW=ELSEWHERE)
        await start_rollout(understudy, tmp_path)
        stack.processes["sidecar of web-b"].stop()
        instances = await live(database_url)
        # As if the five minutes were over that a model has for being loaded.
        await sql(database_url, "UPDATE Rollout SET state = jsonb_set(state, '{limit_from}', to_jsonb("
                                "(state ->> 'limit_from')::float8 - 300))")  # fmt: skip
        start_monitor(stack)
        rollout_id = await store.latest_id("visits")
        give_up = time.monotonic() + 90
        while (waiting := await state_of(database_url))["phase"] != Phase.WAITING:
            assert time.monotonic() < give_up, waiting
            await asyncio.sleep(0.2)
        refused = await understudy.beside("version", "check", "visits", "2", UNDERSTUDY_ENDPOINT_ALLOW=ELSEWHERE)

        start_sidecar(stack, "web-b", port)
        wait_for_port(port, host=PODS["web-b"])
        resumed = await understudy.beside("rollout", "resume", "visits", "--reason", "its sidecar is back")
        view = await ended(store, rollout_id)
        events = [event.reason for event in await store.events(rollout_id)]

    (named,) = [instance for instance in instances if instance.startswith("web-b:")]
    assert (at_first.code, resumed.code) == (0, 0)
    assert waiting["waiting_for"] == WaitingFor.WARM_UP
    assert waiting["step_starts"] == []
    assert "no model server is reached from here, and 1 of 2 live proxies find it ready" in waiting["reason"]
    assert f"{named}: no model server says that it is ready" in waiting["reason"]
    assert refused.code == 1
    assert f"{named}: no model server says that it is ready" in refused.said
    assert view.record.state.phase is Phase.SUCCEEDED, events
    assert any("the warm-up passed through each of 2 live proxies" in reason for reason in events)
