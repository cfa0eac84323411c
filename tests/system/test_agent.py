"""From a registered artifact to a served version, and back: proxy, monitor, agent and model server as processes."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path

import pytest
from command import CommandLine
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, sql

from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.core.loading.memory import FILLED_AT_MOST, PADS
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

pytestmark = pytest.mark.timeout(180)
AVAILABLE = """
    SELECT count(*) FROM LoadedVersion JOIN ModelVersion ON id = model_version_id WHERE state = 'AVAILABLE'
"""


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


async def test_a_load_says_that_a_version_answers_no_call_whose_output_has_another_name(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    artifact, path = lifecycle.put_artifact(1), lifecycle.describe(1)
    described = json.loads(path.read_text())
    path.write_text(json.dumps({**described, "output_schema": {**described["output_schema"], "tensor": "probs"}}))
    await understudy.beside(
        *("version", "register", "visits", "1", "--from", str(path)), *("--artifact", artifact, "--group", "onnx")
    )

    loaded = await understudy.beside("version", "load", "visits", "1", "--wait")

    assert loaded.code == 1, loaded
    assert "✖ it answers no example call: " in loaded.said
    assert "understudy version check visits 1 says more" in loaded.said


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


async def test_idle_versions_make_room_for_wanted_ones_while_the_champion_answers(stack: Stack, database_url: str):
    """A server with room for three: the champion, and of six others the two that were wanted last."""
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent({"UNDERSTUDY_SERVER_MEMORY_BYTES": str(int(3.5 * PADS["understudy"] / FILLED_AT_MOST))})
    stack.start_proxy()
    labels = ("1", "2", "3", "4", "5", "6", "7")
    digest = sha256(b"secret").hexdigest()
    await sql(
        database_url, "INSERT INTO ApiKey (id, sha256, scopes) VALUES ('operator', $1, '{predict,operate}')", digest
    )

    async def load(label: str) -> None:
        """Have a version loaded, and let it be idle from then on, unless it has a role."""
        await register(lifecycle, database_url, label)
        await until(database_url, f"{AVAILABLE} AND version = '{label}'", 1)
        await sql(database_url, "UPDATE VersionLoading SET wanted_until = now()")

    await load(labels[0])
    await sql(
        database_url, "INSERT INTO ServingPolicy (model_name, champion_version) SELECT 'visits', id FROM ModelVersion"
    )
    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)
        calling = asyncio.create_task(keep_calling(connection))
        for label in labels[1:]:
            await load(label)
        calling.cancel()
        statuses = (await asyncio.gather(calling, return_exceptions=True))[0]
        # One that gave way is called by its name.
        began, by_name = time.monotonic(), VISITS.replace("/predict", f"/versions/{labels[1]}/predict")
        key = "authorization: Bearer operator.secret\r\n"
        refusals = []
        while (answer := await connection.post(by_name, PREDICT_BODIES[0], key)).status != 200:
            refusals.append((answer.status, answer.json["code"], answer.headers.get(b"retry-after")))
            assert time.monotonic() - began < GIVE_UP_SECONDS, refusals
            await asyncio.sleep(0.2)
        print(f"loaded for its caller within {time.monotonic() - began:.1f} s")

    left = await sql(database_url, "SELECT version FROM ModelEndpoint JOIN ModelVersion v ON v.id = model_version_id")
    assert {row[0] for row in left} == {labels[0], labels[1], labels[-1]}
    assert (503, "E509", b"10") in refusals, refusals
    assert answer.json["version"] == labels[1]
    assert isinstance(statuses, Counter)
    assert statuses.keys() == {200}
    print(f"{statuses[200]} calls, none failed")


async def keep_calling(connection: Connection) -> Counter[int]:
    """Call the champion until cancelled, and return how often it gave which status."""
    statuses: Counter[int] = Counter()
    with suppress(asyncio.CancelledError):
        while True:
            statuses[
                (await connection.post(VISITS, PREDICT_BODIES[statuses.total() % len(PREDICT_BODIES)])).status
            ] += 1
            await asyncio.sleep(0.02)
    return statuses


async def register(lifecycle: Lifecycle, database_url: str, label: str) -> None:
    number = int(label) % 4 + 1
    example, artifact = example_version("visits", number), lifecycle.put_artifact(number)
    new = NewVersion("visits", label, artifact, "sklearn", example.input_schema, example.output_schema)
    actor = Actor("test", "cli", "it is loaded")
    await register_version(PostgresRegistry(database_url), new._replace(group_name="onnx", timeout_ms=1_000), actor)
