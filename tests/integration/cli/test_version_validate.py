"""``version validate`` asks real model servers cases, hard calls and load, and says what a version does not stand."""

import json
from collections.abc import Callable

import pytest
from command import CommandLine
from e2e.stack import register

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.postgres.loading.registry import PostgresLoadingRegistry
from understudy.ports.loading.loading_registry import UnvalidatedVersion

QUICK = ("--load-seconds", "0.2")


@pytest.fixture
async def _registered(database_url: str, model_port: Callable[[str], int]) -> None:
    """Model ``visits``: 2 answers, 3 takes longer than its time-out, and 4 has no server."""
    await register(database_url, 2, [model_port("visits:2")])
    await register(database_url, 3, [model_port("visits:3,latency_ms=40")], timeout_ms=30)
    await register(database_url, 4, [])


@pytest.mark.usefixtures("_registered")
async def test_each_step_is_a_finding_and_the_one_that_fails_is_the_last(understudy: CommandLine, tmp_path):
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([{"case_id": "wrong", **example_rows()[0].inputs, "expected": -1}]))

    good = await understudy.beside("version", "validate", "visits", "2", *QUICK)
    slow = await understudy.beside("version", "validate", "visits", "3", *QUICK, "--no-robustness", "--json")
    wrong = await understudy.beside("version", "validate", "visits", "2", "--cases", str(cases), "--json")
    away = await understudy.beside("version", "validate", "visits", "4", *QUICK, "--json")

    assert (good.code, slow.code, wrong.code, away.code) == (0, 1, 1, 1), (good, slow, wrong, away)
    assert "✔ visits 2 is validated" in good.said
    assert "100 hard calls, 0 of them refused" in good.said
    assert "calls in 0.2 s, 4 at a time: p50" in good.said
    states = [(one["name"], one["state"]) for one in slow.document["findings"]]
    assert states == [("load", "problem")]
    assert "a call may take 30 ms, its timeout_ms" in slow.document["findings"][0]["what"]
    assert [one["name"] for one in wrong.document["findings"]] == ["cases"]
    assert "case wrong (1 of 1)" in wrong.document["findings"][0]["what"]
    assert [(one["name"], one["state"]) for one in away.document["findings"]] == [("servers", "problem")]


@pytest.mark.usefixtures("_registered")
async def test_a_version_with_callers_is_not_tried_without_being_asked_for(understudy: CommandLine):
    await understudy.beside("model", "set", "visits", "--champion", "2", "--reason", "the first", "--yes")

    refused = await understudy.beside("version", "validate", "visits", "2", *QUICK)
    done = await understudy.beside("version", "validate", "visits", "2", "--load-seconds", "0", "--while-serving")

    assert (refused.code, done.code) == (2, 0), done
    assert "version 2 of visits is champion: its callers would feel the load" in refused.said


@pytest.mark.usefixtures("_registered")
async def test_what_becomes_of_a_validation_at_an_agents_server_is_kept_and_lets_the_version_have_its_role(
    understudy: CommandLine, database, database_url
):
    await database.execute(
        "INSERT INTO ModelServer (name, group_name, target, build)"
        " SELECT 'onnx-0', 'onnx', target, 'onnx 1' FROM ModelEndpoint LIMIT 1"
    )
    await database.execute(
        "INSERT INTO VersionLoading (model_version_id, group_name, requires_validation, pinned_digest)"
        " SELECT id, 'onnx', TRUE, 'sha256:' || repeat('ab', 32) FROM ModelVersion WHERE version = '2'"
    )
    await database.execute(
        "UPDATE ModelEndpoint SET source = 'agent', server = 'onnx-0'"
        " WHERE model_version_id = (SELECT id FROM ModelVersion WHERE version = '2')"
    )
    policy = ("model", "set", "visits", "--champion", "2", "--reason", "the first", "--yes")

    refused = await understudy.beside(*policy)
    check = await understudy.beside("version", "check", "visits", "2", "--json")
    done = await understudy.beside("version", "validate", "visits", "2", "--load-seconds", "0")
    shown = await understudy.beside("version", "show", "visits", "2")
    set_now = await understudy.beside(*policy)

    assert refused.code == 7, refused
    assert "understudy version validate visits 2" in refused.said
    assert ("validation", "problem") in [(one["name"], one["state"]) for one in check.document["findings"]]
    assert (done.code, set_now.code) == (0, 0), (done, set_now)
    assert "validated at onnx-0: 100 hard calls, 0 of them refused" in shown.said
    kept = await database.fetchrow("SELECT build, passed, said FROM VersionValidation")
    assert tuple(kept) == ("onnx 1", True, "100 hard calls, 0 of them refused")

    loading = PostgresLoadingRegistry(database_url, timeout_seconds=10)
    assert await loading.list_unvalidated() == []
    await database.execute("UPDATE ModelServer SET build = 'onnx 2'")
    problem = "onnx-0 validated it as onnx 1, and is onnx 2 now"
    assert await loading.list_unvalidated() == [UnvalidatedVersion("visits", "2", "champion", True, problem)]
    await database.execute("UPDATE VersionLoading SET requires_validation = FALSE")
    assert await loading.list_unvalidated() == [UnvalidatedVersion("visits", "2", "champion", False, problem)]
    await database.execute("DELETE FROM VersionValidation")
    assert await loading.list_unvalidated() == []
