"""Guards from end to end: a bad version that an operator gives a share by hand is taken back, however it got it."""

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import orjson
import pytest
from command import CommandLine
from e2e.load import Load, run_load
from e2e.stack import Process, Stack, a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows

pytestmark = pytest.mark.timeout(300)
PER_SECOND = 40
LIMIT_SECONDS = 90.0
ROWS = example_rows()
BAD = "visits:3,latency_ms=40,jitter_ms=15,error_percent=8"
"""The demo's bad version: see entrypoints/demo/topology.py."""
BY_SQL, BY_COMMAND, BY_HTTP, ALERTED, GOOD = "by-sql", "by-command", "by-http", "alerted", "good"
MODELS = {BY_SQL: "3", BY_COMMAND: "3", BY_HTTP: "3", ALERTED: "3", GOOD: "2"}
COPY_VERSIONS = """
    INSERT INTO ModelVersion
        (model_name, version, artifact_path, framework, input_schema, output_schema, timeout_ms, backend)
    SELECT $1, version, artifact_path, framework, input_schema, output_schema, timeout_ms,
           jsonb_build_object('model_name', 'visits', 'version', version)
    FROM ModelVersion WHERE model_name = 'visits'
"""
COPY_ENDPOINTS = """
    INSERT INTO ModelEndpoint (model_version_id, target)
    SELECT copy.id, e.target FROM ModelEndpoint e
    JOIN ModelVersion original ON original.id = e.model_version_id AND original.model_name = 'visits'
    JOIN ModelVersion copy ON copy.model_name = $1 AND copy.version = original.version
"""
ADD_POLICY = """
    INSERT INTO ServingPolicy (model_name, champion_version)
    SELECT model_name, id FROM ModelVersion WHERE version = '1' AND model_name = $1
"""
GIVE_SHARE = """
    UPDATE ServingPolicy SET challenger_weight = 10, challenger_version = (
        SELECT id FROM ModelVersion WHERE model_name = $1 AND version = $2)
    WHERE model_name = $1
"""
TAKEN_BACK = """
    SELECT model_name, extract(epoch FROM max(changed_at) - min(changed_at))::float8 AS seconds FROM PolicyAudit
    WHERE (after ->> 'challenger_weight')::int = 10 OR (before ->> 'challenger_weight')::int = 10
    GROUP BY model_name HAVING bool_or((after ->> 'challenger_weight')::int = 0)
"""
ARM_BY_SQL, ARM_BY_COMMAND, ARM_ALERTED = "arm-by-sql", "arm-by-command", "arm-alerted"
ARMED = (ARM_BY_SQL, ARM_BY_COMMAND, ARM_ALERTED)
GIVE_ARMS = """
    UPDATE ServingPolicy SET arms = (
        SELECT jsonb_agg(jsonb_build_object('version_id', id, 'first', 100 - 10 * (4 - version::int),
                                            'last', 109 - 10 * (4 - version::int)))
        FROM ModelVersion WHERE model_name = $1 AND version IN ('2', '3'))
    WHERE model_name = $1
"""
ARM_TAKEN_BACK = """
    SELECT back.model_name, extract(epoch FROM back.changed_at - given.changed_at)::float8 AS seconds
    FROM PolicyAudit AS back JOIN PolicyAudit AS given USING (model_name)
    WHERE back.actor = 'monitor' AND back.before -> 'arms' <> back.after -> 'arms'
      AND given.after -> 'arms' = back.before -> 'arms' AND given.before -> 'arms' = '[]'
"""
SPLITS = (
    "SELECT model, role, version, percent FROM understudy_split WHERE percent > 0 AND role <> 'champion' ORDER BY 1, 3"
)
WEIGHTS = "SELECT model_name, challenger_weight FROM ServingPolicy ORDER BY model_name"


def body_of(number: int) -> bytes:
    """Return a call of one of 5,000 entities with inputs that the cache has not seen."""
    inputs = ROWS[number % 500].inputs
    return orjson.dumps({"entity_id": f"person-{number % 5_000}", "inputs": {**inputs, "log_incentive": number / 1e6}})


class Receiver(BaseHTTPRequestHandler):
    received: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.received.append(orjson.loads(body)["alert"])
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@contextmanager
def receiving() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Listen for alerts: the port, and the list that they come to."""
    received: list[dict[str, Any]] = []
    receiver = ThreadingHTTPServer(("127.0.0.1", 0), type("Told", (Receiver,), {"received": received}))
    Thread(target=receiver.serve_forever, daemon=True).start()
    try:
        yield receiver.server_port, received
    finally:
        receiver.shutdown()
        receiver.server_close()


def start_monitor(stack: Stack, alert_port: int) -> None:
    environment = {
        "DATABASE_URL": stack.database_url,
        "UNDERSTUDY_MONITOR_TICK_SECONDS": "1",
        "UNDERSTUDY_MONITOR_METRICS_PORT": "0",
        "UNDERSTUDY_ENVIRONMENT": "test",
        "UNDERSTUDY_ALERT_WEBHOOK_URL": f"http://127.0.0.1:{alert_port}/alerts",
    }
    arguments = ["-m", "understudy.entrypoints.cli", "serve", "monitor"]
    stack.processes["monitor"] = Process("monitor", arguments, stack.folder, environment)


async def several_models(stack: Stack, database_url: str, models: Collection[str], alerted: str) -> None:
    equal, bad = stack.start_model("visits:1", "visits:2"), stack.start_model(BAD)
    for label, port in ((1, equal), (2, equal), (3, bad)):
        await register(database_url, label, [port])
    for model in models:
        for statement in (COPY_VERSIONS, COPY_ENDPOINTS, ADD_POLICY):
            await sql(database_url, statement, model)
    await sql(database_url, "UPDATE ServingPolicy SET guard = 'alert' WHERE model_name = $1", alerted)
    await sql(
        database_url,
        "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('ops', $1, '{read,operate,predict}')",
        sha256(b"secret").hexdigest(),
    )


async def give_shares(port: int, database_url: str, understudy: CommandLine) -> None:
    for model in (BY_SQL, ALERTED, GOOD):
        await sql(database_url, GIVE_SHARE, model, MODELS[model])
    done = await understudy.beside(
        "model", "set", BY_COMMAND, "--challenger", "3", "--weight", "10", "--reason", "look", "--yes"
    )
    assert done.code == 0, done.err
    async with httpx2.AsyncClient(headers={"authorization": "Bearer ops.secret"}, timeout=30) as client:
        change = {"challenger": "3", "challenger_weight": 10, "reason": "look"}
        url = f"http://127.0.0.1:{port}/v1/models/{BY_HTTP}/policy"
        answer = await client.patch(url, json=change, headers={"if-match": '"1"'})
    assert answer.status_code == 200, answer.text


async def give_arms(database_url: str, understudy: CommandLine) -> None:
    for model in (ARM_BY_SQL, ARM_ALERTED):
        await sql(database_url, GIVE_ARMS, model)
    arms = ("--challenger", "2", "--weight", "10", "--arm", "3=10")
    done = await understudy.beside("model", "set", ARM_BY_COMMAND, *arms, "--reason", "look", "--yes")
    assert done.code == 0, done.err


async def seconds_until_taken_back(database_url: str, models: set[str], query: str = TAKEN_BACK) -> dict[str, float]:
    """Return how long each model's challenger, or arm, had its share, by the audit's clock."""
    deadline = time.monotonic() + LIMIT_SECONDS + 30
    while True:
        found = {row["model_name"]: row["seconds"] for row in await sql(database_url, query)}
        if models <= found.keys() or time.monotonic() > deadline:
            return found
        await asyncio.sleep(0.5)


async def told(received: list[dict[str, Any]], kind: str, models: set[str]) -> bool:
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        if models <= {event["model"] for event in received if event["kind"] == kind}:
            return True
        await asyncio.sleep(0.2)
    return False


@pytest.mark.long
async def test_a_bad_version_with_a_share_by_sql_command_or_http_is_back_at_zero_within_ninety_seconds(
    tmp_path, database_url, understudy
):
    taken_back = {BY_SQL, BY_COMMAND, BY_HTTP}
    with receiving() as (alert_port, received), a_stack(tmp_path, database_url) as stack:
        await several_models(stack, database_url, MODELS, ALERTED)
        port = stack.start_proxy(workers=2)
        start_monitor(stack, alert_port)
        load = Load()

        def load_of(model: str) -> Any:
            path = f"/v1/models/{model}/predict"
            return run_load(port, path, body_of, per_second=PER_SECOND, seconds=LIMIT_SECONDS + 60, load=load)

        loads = [asyncio.create_task(load_of(model)) for model in MODELS]
        await asyncio.sleep(3)
        await give_shares(port, database_url, understudy)
        seconds = await seconds_until_taken_back(database_url, taken_back)
        is_told = await told(received, "canary_rolled_back", taken_back) and await told(
            received, "guard_failed", {ALERTED}
        )
        doctor = await understudy.beside("doctor")
        load.is_over = True
        await asyncio.gather(*loads)
        weights = {row["model_name"]: row["challenger_weight"] for row in await sql(database_url, WEIGHTS)}
        audit = await sql(
            database_url, "SELECT model_name, reason FROM PolicyAudit WHERE actor = 'monitor' ORDER BY model_name"
        )

    print(f"taken back after {seconds}")
    assert load.failed == []
    assert seconds.keys() == taken_back, [tuple(row) for row in audit]
    assert max(seconds.values()) <= LIMIT_SECONDS
    assert (weights[ALERTED], weights[GOOD]) == (10, 10)
    assert is_told, received
    assert {row["model_name"] for row in audit if "rolled back at 10 %" in row["reason"]} == taken_back
    assert doctor.code == 1
    assert f"guard {BY_SQL}" in doctor.said


@pytest.mark.long
async def test_a_bad_version_as_a_further_arm_is_back_at_zero_within_ninety_seconds_and_the_good_ones_stay(
    tmp_path, database_url, understudy
):
    taken_back = {ARM_BY_SQL, ARM_BY_COMMAND}
    with receiving() as (alert_port, received), a_stack(tmp_path, database_url) as stack:
        await several_models(stack, database_url, ARMED, ARM_ALERTED)
        port = stack.start_proxy(workers=2)
        start_monitor(stack, alert_port)
        load = Load()
        loads = [
            asyncio.create_task(
                run_load(
                    port, f"/v1/models/{model}/predict", body_of, per_second=PER_SECOND, seconds=LIMIT_SECONDS + 60,
                    load=load,
                )
            )
            for model in ARMED
        ]  # fmt: skip
        await asyncio.sleep(3)
        await give_arms(database_url, understudy)
        seconds = await seconds_until_taken_back(database_url, taken_back, ARM_TAKEN_BACK)
        is_told = await told(received, "canary_rolled_back", taken_back) and await told(
            received, "guard_failed", {ARM_ALERTED}
        )
        doctor = await understudy.beside("doctor")
        shown = await understudy.beside("model", "show", ARM_BY_COMMAND)
        load.is_over = True
        await asyncio.gather(*loads)
        split = [tuple(row) for row in await sql(database_url, SPLITS)]
        audit = await sql(
            database_url, "SELECT model_name, reason FROM PolicyAudit WHERE actor = 'monitor' ORDER BY model_name"
        )

    print(f"taken back after {seconds}")
    assert load.failed == []
    assert seconds.keys() == taken_back, [tuple(row) for row in audit]
    assert max(seconds.values()) <= LIMIT_SECONDS
    assert split == [
        (ARM_ALERTED, "challenger", "2", 10),
        (ARM_ALERTED, "challenger", "3", 10),
        (ARM_BY_COMMAND, "challenger", "2", 10),
        (ARM_BY_SQL, "challenger", "2", 10),
    ]
    assert is_told, received
    assert all(
        "version 3" in event["summary"] for event in received if event["kind"] in {"canary_rolled_back", "guard_failed"}
    )
    assert {row["model_name"] for row in audit if "version 3 rolled back at 10 %" in row["reason"]} == taken_back
    assert doctor.code == 1
    assert f"guard {ARM_BY_SQL}" in doctor.said
    assert "watches version 2" in shown.said
