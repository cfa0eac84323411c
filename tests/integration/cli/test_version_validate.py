"""``version validate`` asks real model servers cases, hard calls and load, and says what a version does not stand."""

import json
from collections.abc import Callable

import pytest
from command import CommandLine
from e2e.stack import register

from understudy.adapters.dev_server.example_models import example_rows

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
