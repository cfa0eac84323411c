"""The demo: one command starts everything, and nothing of it stays."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from understudy.adapters.child_process import is_alive
from understudy.adapters.example_models import example_rows
from understudy.entrypoints.demo.topology import SERVERS

pytestmark = pytest.mark.timeout(180)
START_SECONDS, STOP_SECONDS = 60.0, 30.0
OWN = {"DATABASE_URL", "REDIS_URL"}


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "understudy.entrypoints.cli", "demo", "--state-dir", str(folder), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**{name: value for name, value in os.environ.items() if name not in OWN}, **environment},
    )


@contextmanager
def a_demo(folder: Path, *arguments: str, **environment: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    demo = start(folder, "--json", *arguments, **environment)
    try:
        assert demo.stdout is not None
        line = demo.stdout.readline()
        assert line, demo.communicate(timeout=STOP_SECONDS)[1]
        yield demo, json.loads(line)
    finally:
        demo.terminate()
        demo.communicate(timeout=STOP_SECONDS)


def predict(proxy: str, number: int) -> dict[str, Any]:
    row = example_rows("visits")[number]
    body = json.dumps({"entity_id": f"customer-{number}", "inputs": row.inputs}).encode()
    request = Request(f"{proxy}/v1/models/visits/predict", body, {"content-type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        said: dict[str, Any] = json.load(answer)
        return said


def all_gone(pids: dict[str, int], seconds: float) -> dict[str, int]:
    give_up = time.monotonic() + seconds
    while (alive := {name: pid for name, pid in pids.items() if is_alive(pid)}) and time.monotonic() < give_up:
        time.sleep(0.05)
    return alive


def test_once_prints_one_prediction_and_leaves_nothing_running(short_path: Path):
    demo = start(short_path, "--once")
    out, err = demo.communicate(timeout=START_SECONDS)

    prediction = json.loads(out)
    assert demo.returncode == 0
    assert 0 < prediction["prediction"]["score"] < 1
    assert (prediction["model"], prediction["version"], prediction["role"]) == ("visits", "1", "champion")
    assert [line.split()[0] for line in err.splitlines()].count("proxy") == 1
    assert not (short_path / "demo.json").exists()


def test_a_demo_answers_routes_and_stops_every_process_it_started(short_path: Path):
    with a_demo(short_path, "--no-traffic") as (demo, running):
        roles = {predict(running["proxy"], number)["role"] for number in range(60)}
        with urlopen(running["metrics"], timeout=10) as metrics:
            measured = metrics.read().decode()
        second = start(short_path, "--once")
        _, refusal = second.communicate(timeout=START_SECONDS)
        demo.send_signal(signal.SIGTERM)
        _, err = demo.communicate(timeout=STOP_SECONDS)

    assert demo.returncode == 0, err
    assert roles == {"champion", "challenger"}
    assert "predict_requests_total" in measured
    assert set(running["model_servers"]) == {server.name for server in SERVERS}
    assert {"demo", "proxy", "postgres", "watchdog", *running["model_servers"]} <= set(running["pids"])
    assert all_gone(running["pids"], 0.0) == {}
    assert (second.returncode, "a demo is running in" in refusal) == (1, True)
    assert running["proxy"] in refusal


def test_a_demo_started_again_keeps_the_policy_that_people_made(short_path: Path):
    statement = ["model", "set", "visits", "--weight", "0", "--reason", "enough", "--yes"]

    with a_demo(short_path, "--no-traffic") as (_, running):
        environment = {**os.environ, "DATABASE_URL": running["database_url"]}
        command = [sys.executable, "-m", "understudy.entrypoints.cli", *statement]
        subprocess.run(command, env=environment, check=True, timeout=60, capture_output=True)
    with a_demo(short_path, "--no-traffic") as (_, running):
        roles = {predict(running["proxy"], number)["role"] for number in range(60)}

    assert roles == {"champion"}


def test_a_demo_uses_the_servers_that_the_environment_names(short_path: Path, database_url: str, valkey_url: str):
    with a_demo(short_path, "--workers", "2", DATABASE_URL=database_url, REDIS_URL=valkey_url) as (_, running):
        said = predict(running["proxy"], 1)

    assert (said["model"], running["database_url"], running["redis_url"]) == ("visits", database_url, valkey_url)
    assert {"postgres", "valkey"} & set(running["pids"]) == set()
    assert not (short_path / "postgres").exists()


def test_a_demo_that_is_killed_leaves_no_process_behind(short_path: Path):
    with a_demo(short_path) as (demo, running):
        demo.kill()
        demo.wait(10)

        assert all_gone(running["pids"], 15.0) == {}
