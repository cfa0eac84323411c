"""Versions spread over servers by groups: one that gets more calls is moved to a larger group (ADR 174, ADR 185)."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, sql

pytestmark = pytest.mark.timeout(180)
SERVERS = """
    SELECT string_agg(server, ',' ORDER BY server) FROM ModelEndpoint JOIN ModelVersion AS v ON v.id = model_version_id
    WHERE v.version = '1'
"""


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def test_a_version_moves_to_a_group_with_more_servers_and_back_without_a_failed_call(
    stack: Stack, database_url: str, understudy: CommandLine
):
    servers = {name: Lifecycle(stack, name) for name in ("cold-0", "hot-0", "hot-1", "hot-2")}
    for name, server in servers.items():
        if name != "hot-2":
            start(server, name)
    servers["cold-0"].start_monitor()
    stack.start_proxy()
    for label in (1, 2):
        artifact = servers["cold-0"].put_artifact(label)
        described = str(servers["cold-0"].describe(label))
        options = ("--from", described, "--artifact", artifact, "--group", "cold")
        registered = await understudy.beside("version", "register", "visits", str(label), *options)
        assert registered.code == 0, registered
        loaded = await understudy.beside("version", "load", "visits", str(label), "--wait", "--keep", "--json")
        assert loaded.code == 0, loaded
    set_policy = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    assert set_policy.code == 0, set_policy

    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        calling = asyncio.create_task(keep_calling(connection))
        took: dict[str, float] = {}
        for turn, (group, expected) in enumerate((("hot", "hot-0,hot-1"), ("cold", "cold-0"), ("hot", "hot-0,hot-1"))):
            began = time.monotonic()
            moved = await understudy.beside("version", "load", "visits", "1", "--group", group, "--wait", "--keep")
            assert moved.code == 0, moved
            await until(database_url, SERVERS, expected)
            took[f"{turn}: to {group}"] = time.monotonic() - began
        began = time.monotonic()
        start(servers["hot-2"], "hot-2")
        await until(database_url, SERVERS, "hot-0,hot-1,hot-2")
        took["a further server of the group"] = time.monotonic() - began
        calling.cancel()
        statuses = (await asyncio.gather(calling, return_exceptions=True))[0]

    stayed = await sql(database_url, SERVERS.replace("'1'", "'2'"))
    assert stayed[0][0] == "cold-0"
    assert isinstance(statuses, Counter)
    assert statuses.keys() == {200}, statuses
    print(f"{statuses[200]} calls, none failed;", ", ".join(f"{what}: {took[what]:.1f} s" for what in took))


async def test_a_version_is_on_one_server_of_three_on_two_and_on_all_again_without_a_failed_call(
    stack: Stack, database_url: str, understudy: CommandLine
):
    servers = {name: Lifecycle(stack, name) for name in ("cpu-0", "cpu-1", "cpu-2")}
    for name, server in servers.items():
        start(server, name)
    servers["cpu-0"].start_monitor()
    stack.start_proxy()
    described, artifact = str(servers["cpu-0"].describe(1)), servers["cpu-0"].put_artifact(1)
    options = ("--from", described, "--artifact", artifact, "--group", "cpu", "--replicas", "1")
    registered = await understudy.beside("version", "register", "visits", "1", *options)
    assert registered.code == 0, registered
    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--keep", "--json")
    assert loaded.code == 0, loaded
    assert loaded.document["loading"]["replicas"] == "1"
    set_policy = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    assert set_policy.code == 0, set_policy

    count = "SELECT count(*)::int FROM ModelEndpoint"
    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        calling = asyncio.create_task(keep_calling(connection))
        for replicas, expected in (("2", 2), ("all", 3), ("1", 1)):
            load = ("version", "load", "visits", "1", "--wait", "--keep")
            asked = await understudy.beside(*load, "--replicas", replicas)
            assert asked.code == 0, asked
            await until(database_url, count, expected)
        # The servers that lost it drop it once no call can reach it.
        await until(database_url, "SELECT count(*)::int FROM LoadedVersion WHERE state <> 'END'", 1)
        calling.cancel()
        statuses = (await asyncio.gather(calling, return_exceptions=True))[0]

    assert isinstance(statuses, Counter)
    assert statuses.keys() == {200}, statuses
    found = await understudy.beside("doctor", "--json")
    assert not [one for one in found.document["findings"] if "loading" in one["name"]]


@pytest.mark.slow
async def test_a_version_whose_only_server_has_died_is_loaded_on_another_one_after_a_minute(
    stack: Stack, database_url: str, understudy: CommandLine
):
    servers = {name: Lifecycle(stack, name) for name in ("cpu-0", "cpu-1")}
    room = {"UNDERSTUDY_SERVER_GROUP": "cpu", "UNDERSTUDY_SERVER_MEMORY_BYTES": str(2**30)}
    for server in servers.values():
        server.start_server()
        server.start_agent(room)
    servers["cpu-0"].start_monitor()
    stack.start_proxy()
    described, artifact = str(servers["cpu-0"].describe(1)), servers["cpu-0"].put_artifact(1)
    options = ("--from", described, "--artifact", artifact, "--group", "cpu", "--replicas", "1")
    for command in (
        ("version", "register", "visits", "1", *options),
        ("version", "load", "visits", "1", "--wait", "--keep"),
        ("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes"),
    ):
        done = await understudy.beside(*command)
        assert done.code == 0, done
    ((first,),) = await sql(database_url, "SELECT server FROM ModelEndpoint")
    other = "cpu-1" if first == "cpu-0" else "cpu-0"

    began = time.monotonic()
    for process in (servers[first].agent, servers[first].server):
        servers[first].kill(process)
    # The other one has an endpoint, and then that of the dead one goes.
    await until(database_url, "SELECT string_agg(server, ',') FROM ModelEndpoint", other, 120)
    took = time.monotonic() - began

    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
    assert took > 55, took
    print(f"loaded on another server, and no more called at the first: {took:.1f} s after both processes were killed")


def start(server: Lifecycle, name: str) -> None:
    """Start a model server and its agent in the group that its name begins with."""
    server.start_server()
    server.start_agent({"UNDERSTUDY_SERVER_GROUP": name.partition("-")[0]})


async def keep_calling(connection: Connection) -> Counter[int]:
    """Call the champion until cancelled, and return how often it gave which status."""
    statuses: Counter[int] = Counter()
    with suppress(asyncio.CancelledError):
        while True:
            body = PREDICT_BODIES[statuses.total() % len(PREDICT_BODIES)]
            statuses[(await connection.post(VISITS, body)).status] += 1
            await asyncio.sleep(0.02)
    return statuses
