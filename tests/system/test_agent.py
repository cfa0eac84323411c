"""From a registered artifact to a served version, and back: proxy, monitor, agent and model server as processes."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, Stack, a_stack, sql

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def state_of(database_url: str, label: int) -> str:
    rows = await sql(
        database_url,
        "SELECT state FROM LoadedVersion JOIN ModelVersion ON id = model_version_id WHERE version = $1",
        str(label),
    )
    return str(rows[0][0]) if rows else ""


async def test_a_registered_artifact_is_served_survives_kills_and_is_unloaded_once_no_proxy_calls_it(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    stack.start_proxy()
    for label in (1, 2):
        artifact = lifecycle.put_artifact(label)
        registered = await understudy.beside(
            *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
            *("--artifact", artifact, "--group", "onnx"),
        )
        assert registered.code == 0, registered
    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
    assert loaded.code == 0, loaded

    set_policy = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
    assert set_policy.code == 0, set_policy
    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        first = await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

        lifecycle.kill("agent")
        lifecycle.kill("server")
        lifecycle.start_server()
        lifecycle.start_agent()
        again = await predict(connection, PREDICT_BODIES[1], GIVE_UP_SECONDS)
        await until(database_url, "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'", 2)

        refused = await understudy.beside("version", "unload", "visits", "1")
        unloaded = await understudy.beside("version", "unload", "visits", "2")
        assert (refused.code, unloaded.code) == (7, 0), (refused, unloaded)
        seen = await states_until_end(database_url, 2)
        last = await predict(connection, PREDICT_BODIES[2])

    assert [answer["version"] for answer in (first, again, last)] == ["1", "1", "1"]
    # The endpoint went first, and the server dropped the version when no proxy could call it any more.
    assert seen[:1] == ["QUIESCING"]
    assert seen[-1] == "END"
    rows = await sql(database_url, "SELECT version FROM ModelEndpoint JOIN ModelVersion v ON v.id = model_version_id")
    assert [row[0] for row in rows] == ["1"]


async def states_until_end(database_url: str, label: int) -> list[str]:
    """Return the states of a version without an endpoint, in order, until it has ended."""
    seen: list[str] = []
    give_up = time.monotonic() + GIVE_UP_SECONDS
    while seen[-1:] != ["END"]:
        assert time.monotonic() < give_up, seen
        state = await state_of(database_url, label)
        if state != "AVAILABLE" and state not in seen[-1:]:
            seen.append(state)
        await asyncio.sleep(0.02)
    return seen
