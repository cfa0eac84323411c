"""A model server that is drained before it ends, as the end of its pod does it: no call fails (ADR 189)."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
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
    servers, ports = started(stack, {})
    one = servers["onnx-0"]
    await one.register("1")
    await serve(understudy)
    await until(database_url, SERVERS, "onnx-0,onnx-1")
    assert await asyncio.to_thread(is_ready, ports["onnx-0"])

    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        statuses: Counter[int] = Counter()
        calling = asyncio.create_task(keep_calling(connection, statuses))
        drained = await understudy.beside("server", "drain", "--self", UNDERSTUDY_AGENT_METRICS_PORT=ports["onnx-0"])
        assert (await sql(database_url, SERVERS))[0][0] == "onnx-1"  # before its server ends
        await end(one, calling, statuses)
    assert drained.code == 0, drained
    assert statuses.keys() == {200}, statuses

    kept = await understudy.beside("server", "drain", "--self", UNDERSTUDY_AGENT_METRICS_PORT=ports["onnx-1"])
    assert kept.code == 1, kept
    await until(database_url, SERVERS, "onnx-1")


async def test_a_version_on_one_server_alone_is_loaded_on_another_one_before_its_own_has_drained(
    stack: Stack, database_url: str, understudy: CommandLine
):
    servers, ports = started(stack, {"UNDERSTUDY_SERVER_MEMORY_BYTES": str(2**30)})
    await servers["onnx-0"].register("1")
    await serve(understudy, "--replicas", "1")
    await until(database_url, "SELECT count(*)::int FROM ModelEndpoint", 1)  # both may have had it before that
    ((first,),) = await sql(database_url, SERVERS)
    (other,) = servers.keys() - {first}

    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        statuses: Counter[int] = Counter()
        calling = asyncio.create_task(keep_calling(connection, statuses))
        drained = await understudy.beside("server", "drain", "--self", UNDERSTUDY_AGENT_METRICS_PORT=ports[first])
        assert (await sql(database_url, SERVERS))[0][0] == other
        await end(servers[first], calling, statuses)
    assert drained.code == 0, drained
    assert statuses.keys() == {200}, statuses


def started(stack: Stack, settings: Mapping[str, str]) -> tuple[dict[str, Lifecycle], dict[str, str]]:
    """Start two model servers with their agents, a monitor and a proxy; return the servers and their agents' ports."""
    servers = {name: Lifecycle(stack, name) for name in ("onnx-0", "onnx-1")}
    ports = {name: str(free_port()) for name in servers}
    for name, server in servers.items():
        server.start_server()
        port = {"UNDERSTUDY_AGENT_METRICS_PORT": ports[name], "UNDERSTUDY_SERVER_DRAIN_SECONDS": "10"}
        server.start_agent({**port, **settings})
    servers["onnx-0"].start_monitor()
    stack.start_proxy()
    return servers, ports


async def serve(understudy: CommandLine, *options: str) -> None:
    """Have the first version loaded, and make it champion."""
    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--keep", "--json", *options)
    assert loaded.code == 0, loaded
    chosen = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    assert chosen.code == 0, chosen


async def end(server: Lifecycle, calling: asyncio.Task[None], statuses: Counter[int]) -> None:
    """End a server and its agent, and call some more."""
    server.kill(server.server)
    server.kill(server.agent)
    enough = statuses.total() + CALLS_AFTER
    while statuses.total() < enough and not calling.done():
        await asyncio.sleep(0.01)
    calling.cancel()
    await asyncio.gather(calling, return_exceptions=True)


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
