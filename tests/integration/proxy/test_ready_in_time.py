"""Hundreds of champions whose model server is there and says nothing: `/readyz` answers all the same, and soon."""

import asyncio
import json
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from e2e.stack import a_stack, get, register

MODELS = 300
"""Asked eight at a time for half a second each, as once, they took 19 seconds."""
MAX_SECONDS = 10.0
PATIENT_SECONDS = 60.0


@contextmanager
def a_silent_port() -> Iterator[int]:
    """A port where connections stand, and nothing else happens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(2 * MODELS)
        yield int(listening.getsockname()[1])


def readiness(port: int) -> tuple[int, Any, float]:
    """Return status, body, and how long that took."""
    began = time.monotonic()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENT_SECONDS) as answer:
            status, body = answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        status, body = refused.code, refused.read()
    return status, json.loads(body), time.monotonic() - began


async def a_model_each(database: asyncpg.Connection) -> None:
    await database.execute(
        """INSERT INTO ModelVersion (model_name, version, artifact_path, framework, input_schema, output_schema)
           SELECT 'm' || m, '1', artifact_path, framework, input_schema, output_schema
           FROM ModelVersion, generate_series(2, $1) AS m WHERE model_name = 'visits'""",
        MODELS,
    )
    await database.execute(
        """INSERT INTO ModelEndpoint (model_version_id, target)
           SELECT v.id, e.target FROM ModelVersion v, ModelEndpoint e WHERE v.model_name <> 'visits'"""
    )
    await database.execute(
        "INSERT INTO ServingPolicy (model_name, champion_version) SELECT model_name, id FROM ModelVersion"
    )


@pytest.mark.timeout(300)
async def test_hundreds_of_silent_champions_keep_nobody_waiting_who_asks_whether_the_proxy_is_ready(
    tmp_path, database_url, database
):
    with a_silent_port() as silent, a_stack(tmp_path, database_url) as stack:
        await register(database_url, 1, [silent])
        await a_model_each(database)
        port = stack.start_proxy(wait_ready=False)
        give_up = time.monotonic() + PATIENT_SECONDS
        while get(f"http://127.0.0.1:{port}/livez")[0] != 200:
            assert time.monotonic() < give_up
            await asyncio.sleep(0.05)

        looks = [readiness(port)]
        while len(looks) < 2 or looks[-1][1]["detail"] == looks[0][1]["detail"]:  # an answer is remembered for a while
            looks.append(readiness(port))
            assert time.monotonic() < give_up
        stack.processes["proxy"].signal(signal.SIGTERM)
        leaving = readiness(port)
        while leaving[1]["status"] != "draining":
            leaving = readiness(port)
            assert time.monotonic() < give_up

    assert {(status, body["status"]) for status, body, _ in looks} == {(503, "unreachable")}
    assert all("checked in time" in body["detail"] for _, body, _ in looks)
    assert max(seconds for _, _, seconds in looks) < MAX_SECONDS
    assert leaving[0] == 503
    assert leaving[2] < MAX_SECONDS
