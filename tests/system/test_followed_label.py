"""A tag that is followed: what it names anew is registered, loaded by an agent, and rolled out with its own steps."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from command import CommandLine, Done
from e2e.lifecycle import Lifecycle, until
from e2e.stack import Stack, a_stack, sql
from loopback.oci_registry import a_registry

from understudy.adapters.dev_server.example_models import example_version

pytestmark = pytest.mark.timeout(300)
AVAILABLE = "SELECT count(*) FROM LoadedVersion WHERE state = 'AVAILABLE'"
ANNOTATIONS = {"org.opencontainers.image.version": "2026.11", "dev.understudy.rollout.steps": "1, 5,25,50"}


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def test_a_moved_tag_registers_a_version_and_starts_its_rollout_once(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    with a_registry() as registry:
        address = f"oci://{registry.name}/models/visits"
        lifecycle.start_agent({"UNDERSTUDY_ARTIFACT_STORES": address})
        registered = await understudy.beside(
            *("version", "register", "visits", "1", "--from", str(lifecycle.describe(1))),
            *("--artifact", lifecycle.put_artifact(1), "--group", "onnx"),
        )
        assert registered.code == 0, registered
        await understudy.beside("version", "load", "visits", "1", "--wait")
        first = await understudy.beside("model", "set", "visits", "--champion", "1", "--reason", "first", "--yes")
        assert first.code == 0, first

        async def look(*options: str) -> Done:
            return await understudy.beside(
                *("version", "follow", "visits", f"{address}:canary", "--group", "onnx", "--once", *options)
            )

        nothing = await look("--on-new", "rollout")
        manifest = registry.push(
            "canary", [registry.file("model.onnx", example_version("visits", 2).read())], annotations=ANNOTATIONS
        )
        new = await look("--on-new", "rollout")
        await until(database_url, AVAILABLE, 2)
        started = await look("--on-new", "rollout")
        again = await look("--on-new", "rollout")
        moved = registry.push("canary", [registry.file("model.onnx", example_version("visits", 3).read())])
        other = await look()

    assert nothing.code != 0
    assert "E213" in nothing.said
    assert f"version 2026.11 is registered, like 1, for {manifest}" in new.said, new
    assert "version 2026.11 has its rollout, by the plan 1,5,25,50,100" in started.said, started
    assert "nothing is new" in again.said, again
    assert f"version {moved.removeprefix('sha256:')[:12]} is registered" in other.said, other
    versions = await sql(database_url, "SELECT version, artifact_path FROM ModelVersion ORDER BY id")
    assert [row[1] for row in versions[1:]] == [f"{address}:canary@{digest}" for digest in (manifest, moved)]
    rollouts = await sql(database_url, "SELECT plan FROM Rollout WHERE kind = 'rollout'")
    assert len(rollouts) == 1
    assert [step["weight_percent"] for step in orjson.loads(rollouts[0][0])["steps"]] == [1, 5, 25, 50, 100]
