"""What an agent has a version show before it is announced: monitor, agent and model server as processes."""

from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from command import CommandLine
from e2e.lifecycle import Lifecycle
from e2e.stack import PREDICT_BODIES, Stack, a_stack, sql

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def stack(tmp_path: Path, database_url: str) -> Iterator[Stack]:
    with a_stack(tmp_path, database_url) as started:
        yield started


async def test_a_version_that_does_not_answer_its_cases_as_expected_is_not_announced_and_the_case_is_named(
    stack: Stack, database_url: str, understudy: CommandLine
):
    lifecycle = Lifecycle(stack)
    lifecycle.start_server()
    lifecycle.start_monitor()
    lifecycle.start_agent()
    inputs = orjson.loads(PREDICT_BODIES[0])["inputs"]
    good = {**inputs, "expected": 0.5, "tolerance_abs": 1}
    artifacts = {
        1: lifecycle.put_cases(1, good),
        2: lifecycle.put_cases(2, good, {**inputs, "case_id": "high", "expected": 7}),
    }
    for label, artifact in artifacts.items():
        registered = await understudy.beside(
            *("version", "register", "visits", str(label), "--from", str(lifecycle.describe(label))),
            *("--artifact", artifact, "--group", "onnx"),
        )
        assert registered.code == 0, registered

    loaded = await understudy.beside("version", "load", "visits", "1", "--wait", "--json")
    failed = await understudy.beside("version", "load", "visits", "2", "--wait", "--json")
    refused = await understudy.beside("model", "set", "visits", "--champion", "2", "--reason", "no", "--yes")

    assert loaded.code == 0, loaded
    assert failed.code == 1, failed
    (server,) = failed.document["loading"]["servers"]
    assert (server["state"], server["error_code"], server["will_retry"]) == ("ERROR", "E216", False)
    assert server["error"].startswith("case high (2 of 2): ")
    assert refused.code == 7, refused
    assert "version 2 of visits is loaded on no server (onnx-0: ERROR E216)" in refused.said
    ((endpoints,),) = await sql(database_url, "SELECT count(*) FROM ModelEndpoint")
    assert endpoints == 1
