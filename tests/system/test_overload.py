"""A proxy with ten times the connections that its model server can serve: real processes, a chosen latency."""

import asyncio
import os
import time
from pathlib import Path

import orjson
import pytest
from e2e.load import Answer, Connection
from e2e.stack import PREDICT_BODIES, VISITS, Process, a_stack, get, register, sql, wait_for_port

from understudy.adapters.embedded.loopback_ports import free_port

ROOT = Path(__file__).resolve().parents[2]
SLOTS = 8
LATENCY_SECONDS = 0.05
WAIT_SECONDS = 0.2
LOAD_SECONDS = 4.0
OUTPUT_SCHEMA = {"tensor": "probabilities", "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}


def start_stub(folder: Path) -> tuple[Process, int]:
    port = free_port()
    arguments = ["-m", "loadtests.stub_model", "--port", str(port)]
    arguments += ["--latency-ms", str(LATENCY_SECONDS * 1000), "--slots", str(SLOTS)]
    process = Process("stub", arguments, folder, {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])})
    wait_for_port(port)
    return process, port


async def asked_by(connections: int, port: int) -> list[Answer]:
    """Let each connection ask as soon as it has its answer."""
    answers: list[Answer] = []
    until = time.monotonic() + LOAD_SECONDS

    async def ask(number: int) -> None:
        connection = Connection("127.0.0.1", port)
        while time.monotonic() < until:
            answers.append(await connection.post(VISITS, PREDICT_BODIES[number % len(PREDICT_BODIES)]))
        connection.close()

    await asyncio.gather(*(ask(number) for number in range(connections)))
    return answers


async def slowest_liveness(port: int) -> float:
    """Ask /livez for as long as the load runs; returns the longest time it took."""
    slowest = 0.0
    until = time.monotonic() + LOAD_SECONDS
    while time.monotonic() < until:
        started = time.monotonic()
        status, _ = await asyncio.to_thread(get, f"http://127.0.0.1:{port}/livez")
        assert status == 200
        slowest = max(slowest, time.monotonic() - started)
        await asyncio.sleep(0.05)
    return slowest


def goodput(answers: list[Answer]) -> int:
    return sum(answer.status == 200 for answer in answers)


@pytest.mark.alone
async def test_at_ten_times_the_connections_each_is_answered_in_time_or_refused_after_the_wait(tmp_path, database_url):
    with a_stack(tmp_path, database_url) as stack:
        stack.processes["stub"], model_port = start_stub(tmp_path)
        schema = orjson.dumps(OUTPUT_SCHEMA).decode()
        version = await register(
            database_url, 1, [model_port], protocol="oip", output_schema=schema, deterministic=False
        )
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version
        )
        port = stack.start_proxy(backend_batch_rows=1, backend_calls=SLOTS, backend_wait_seconds=WAIT_SECONDS)

        at_capacity = await asked_by(SLOTS, port)
        answers, slowest_livez = await asyncio.gather(asked_by(10 * SLOTS, port), slowest_liveness(port))

    refused = [answer for answer in answers if answer.status == 503]
    p99 = sorted(answer.seconds for answer in answers)[int(len(answers) * 0.99)]
    slack = max(answer.seconds for answer in at_capacity) - LATENCY_SECONDS  # what this machine adds by itself
    print(
        f"200s {goodput(answers)} of {goodput(at_capacity)} at capacity, 503s {len(refused)}, p99 {p99:.3f} s, "
        f"/livez {slowest_livez:.3f} s, slack {slack:.3f} s"
    )
    assert {answer.status for answer in at_capacity} == {200}
    assert {answer.status for answer in answers} == {200, 503}  # 408 would be one that hangs
    assert {answer.headers.get(b"retry-after") for answer in refused} == {b"1"}
    assert {answer.json["code"] for answer in refused} == {"E507"}
    assert min(answer.seconds for answer in refused) >= 0.95 * WAIT_SECONDS
    assert p99 <= WAIT_SECONDS + LATENCY_SECONDS + max(0.15, 2 * slack)
    assert goodput(answers) >= 0.8 * goodput(at_capacity)
    assert slowest_livez < 1
