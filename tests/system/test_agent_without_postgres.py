"""A model server that is killed while Postgres is away: its agent has it load again what proxies call."""

import asyncio
import time
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from e2e.lifecycle import GIVE_UP_SECONDS, Lifecycle, predict, until
from e2e.load import Connection
from e2e.stack import PREDICT_BODIES, Stack, a_stack, sql

from understudy.adapters import migrations
from understudy.adapters.dev_server.example_models import example_version
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import own_layout
from understudy.adapters.postgres.registry.registry import PostgresRegistry
from understudy.ports.registry.registry import Actor, NewVersion
from understudy.registry.changes import register_version

pytestmark = pytest.mark.timeout(240)
AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"
CHAMPION = """
    INSERT INTO ServingPolicy (model_name, champion_version) SELECT 'visits', min(id) FROM ModelVersion
"""
ENDPOINTS = "SELECT model_version_id, target FROM ModelEndpoint ORDER BY 1, 2"


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(tmp_path / "postgres")
    server.start()
    yield server
    server.remove()


@pytest.fixture
def stack(tmp_path: Path, postgres: EmbeddedPostgres) -> Iterator[Stack]:
    with a_stack(tmp_path, postgres.url) as started:
        yield started


async def register(lifecycle: Lifecycle, url: str, label: int) -> None:
    example, artifact = example_version("visits", label), lifecycle.put_artifact(label)
    new = NewVersion("visits", str(label), artifact, "sklearn", example.input_schema, example.output_schema)
    await register_version(PostgresRegistry(url), new._replace(group_name="onnx"), Actor("test", "cli", "it is loaded"))


async def models_at(control_port: int, folder: Path, count: int) -> Collection[str]:
    """Return what the model server says that it has loaded, once it is so many models or the wait is over."""
    control = RepositoryControl(f"127.0.0.1:{control_port}", RepositoryFolder(folder / "asked", own_layout))
    give_up = time.monotonic() + GIVE_UP_SECONDS
    try:
        while len(loaded := await control.loaded()) < count and time.monotonic() < give_up:
            await asyncio.sleep(0.1)  # one is loaded after the other
        return loaded
    finally:
        await control.close()


@pytest.mark.parametrize(
    "away_seconds",
    [0.0, pytest.param(600.0, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
    ids=["for a moment", "for ten minutes"],
)
async def test_what_proxies_call_is_loaded_again_without_postgres_and_is_all_there_when_that_is_back(
    stack: Stack, postgres: EmbeddedPostgres, away_seconds: float
):
    await migrations.upgrade(postgres.url)
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    for label in (1, 2):
        await register(lifecycle, postgres.url, label)
    await until(postgres.url, AVAILABLE, 2)
    await sql(postgres.url, CHAMPION)
    stack.start_proxy()
    endpoints = await sql(postgres.url, ENDPOINTS)
    with closing(Connection("127.0.0.1", stack.proxy_port)) as connection:
        await predict(connection, PREDICT_BODIES[0], GIVE_UP_SECONDS)

        await asyncio.to_thread(postgres.stop, "immediate")
        lifecycle.kill(lifecycle.server)
        lifecycle.kill(lifecycle.agent)
        await asyncio.to_thread(lifecycle.start_server)
        began = time.monotonic()
        lifecycle.start_agent()
        without = await predict(connection, PREDICT_BODIES[1], GIVE_UP_SECONDS)
        print(f"answered {time.monotonic() - began:.1f} s after server and agent were started again")

        over = time.monotonic() + away_seconds
        while time.monotonic() < over:  # whatever the agent does meanwhile, proxies are answered
            assert (await predict(connection, PREDICT_BODIES[1]))["version"] == "1"
            await asyncio.sleep(0.2)
        loaded = await models_at(lifecycle.control_port, stack.folder, 2)

        await asyncio.to_thread(postgres.start)
        await until(postgres.url, "SELECT count(*) FROM AgentLease WHERE renewed_at > now() - INTERVAL '3 seconds'", 1)
        await predict(connection, PREDICT_BODIES[2])

    assert without["version"] == "1"
    assert len(loaded) == 2
    assert (await sql(postgres.url, AVAILABLE))[0][0] == 2
    assert await sql(postgres.url, ENDPOINTS) == endpoints
