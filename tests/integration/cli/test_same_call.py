"""Two versions on one model server that their calls do not tell apart: who says so, and that it ends with versions."""

import json
import subprocess
import sys
from collections.abc import Iterator

import orjson
import pytest
from command import CommandLine
from e2e.stack import sql

from understudy.adapters.dev_server.example_models import example_version

SAME = "are the same call at {}: one model there answers both"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """A model server with two versions of one model, as ``understudy modelserver`` starts it."""
    command = [sys.executable, "-m", "understudy.entrypoints.modelserver", "--port", "0"]
    command += ["--serve", "visits:1", "--serve", "visits:2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield f"127.0.0.1:{json.loads(process.stdout.readline())['port']}"
        finally:
            process.terminate()


@pytest.fixture
def described(tmp_path):
    example = example_version("visits", 1)
    schemas = {"input_schema": example.input_schema, "output_schema": example.output_schema}
    path = tmp_path / "visits.json"
    path.write_bytes(orjson.dumps({"artifact_path": "s3://models/visits", "framework": "sklearn", **schemas}))
    return str(path)


@pytest.fixture
def register(understudy: CommandLine, endpoint: str, described: str):
    async def add(version: str, *options: str):
        command = ("version", "register", "visits", version, "--from", described, "--endpoint", endpoint)
        return await understudy.beside(*command, *options)

    return add


async def test_two_versions_of_one_server_without_their_own_numbers_are_the_same_call_everywhere(
    register, understudy: CommandLine, endpoint: str, database_url: str
):
    first = await register("1")
    tried = await register("2", "--dry-run")
    second = await register("2", "--json")
    same = SAME.format(endpoint)
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version)"
        " SELECT 'visits', id FROM ModelVersion WHERE version = '1'",
    )

    check = await understudy.beside("version", "check", "visits", "2")
    diff = await understudy.beside("version", "diff", "visits", "1", "2")
    plan = await understudy.beside("rollout", "start", "visits", "2", "--reason", "r", "--dry-run")
    shadow = await understudy.beside("model", "set", "visits", "--shadow", "2", "--reason", "r", "--yes")
    doctor = await understudy.beside("doctor")

    assert "same call" not in first.said
    assert f"! 1 and 2 {same}" in tried.said
    assert "--backend version=1 and 2 with --backend version=2" in tried.said
    assert [(one["other"], one["is_certain"]) for one in second.document["same_calls"]] == [("1", True)]
    assert (check.code, check.out.startswith("✖ visits 2 is not ready")) == (1, True)
    for done in (check, diff, plan, shadow):
        assert f"1 and 2 {same}" in done.said, done.said
    assert f"visits: 1 and 2 {same}" in doctor.said


async def test_their_own_numbers_at_the_server_tell_two_versions_apart(register, understudy: CommandLine):
    first = await register("1")
    named = await register("2", "--backend", "version=2")
    replaced = await register("1", "--backend", "version=1", "--replace")
    diff = await understudy.beside("version", "diff", "visits", "1", "2")
    check = await understudy.beside("version", "check", "visits", "2", "--against", "1")

    assert "same call" not in first.said
    assert "! 1 lets the server at" in named.said
    assert "Register 1 with --backend version=1" in named.said
    assert "lets the server" not in replaced.said
    assert "same call" not in diff.said
    assert (check.code, "same call" in check.said) == (0, False), check.said


async def test_a_retired_version_is_no_reason_to_warn(register, understudy: CommandLine):
    await register("1")
    retired = await understudy.beside("version", "retire", "visits", "1", "--reason", "r")
    second = await register("2")

    assert retired.code == 0, retired.said
    assert second.code == 0
    assert "same call" not in second.said
