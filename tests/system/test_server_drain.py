"""A model server that is drained before it ends, as the end of its pod does it: no call fails (ADR 189)."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, sql

from understudy.adapters.embedded.loopback_ports import free_port

pytestmark = pytest.mark.timeout(180)
SERVERS = "SELECT string_agg(server, ',' ORDER BY server) FROM ModelEndpoint"
CALLS_AFTER = 50


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def test_a_server_that_is_drained_ends_without_a_failed_call_and_the_last_one_keeps_its_endpoint(
    stack: Stack, database_url: str, understudy: CommandLine
):
    servers = {name: Lifecycle(stack, name) for name in ("onnx-0", "onnx-1")}
    ports = {name: str(free_port()) for name in servers}
    for name, server in servers.items():
        server.start_server()
        server.start_agent({"UNDERSTUDY_AGENT_METRICS_PORT": ports[name], "UNDERSTUDY_SERVER_DRAIN_SECONDS": "10"})
    one = servers["onnx-0"]
    one.start_monitor()
    stack.start_proxy()
    await one.register("1")
    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--keep", "--json")
    assert loaded.code == 0, loaded
    await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    await until(database_url, SERVERS, "onnx-0,onnx-1")
    assert await asyncio.to_thread(is_ready, ports["onnx-0"])

    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        statuses: Counter[int] = Counter()
        calling = asyncio.create_task(keep_calling(connection, statuses))
        drained = await understudy.beside("server", "drain", "--self", UNDERSTUDY_AGENT_METRICS_PORT=ports["onnx-0"])
        assert (await sql(database_url, SERVERS))[0][0] == "onnx-1"  # before its server ends
        one.kill(one.server)
        one.kill(one.agent)
        enough = statuses.total() + CALLS_AFTER
        while statuses.total() < enough and not calling.done():
            await asyncio.sleep(0.01)
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    assert drained.code == 0, drained
    assert statuses.keys() == {200}, statuses

    kept = await understudy.beside("server", "drain", "--self", UNDERSTUDY_AGENT_METRICS_PORT=ports["onnx-1"])
    assert kept.code == 1, kept
    await until(database_url, SERVERS, "onnx-1")


def is_ready(port: str) -> bool:
    with closing(HTTPConnection("127.0.0.1", int(port), timeout=10)) as connection:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200


async def keep_calling(connection: Connection, statuses: Counter[int]) -> None:
    turn = 0
    while True:
        answer = await connection.post(VISITS, PREDICT_BODIES[turn % len(PREDICT_BODIES)])
        statuses[answer.status] += 1
        turn += 1
