"""locust as a process of its own against a real proxy: what it writes can be judged, and what it judges is right."""

import asyncio
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from e2e.stack import PREDICT_BODIES, a_stack, logged_ids, register, sql

from loadtests.answers import answered_by, figures_of, log_figures
from loadtests.locust_run import Asked, LocustFailed, LocustRun
from loadtests.slo import broken, judge, parse_slos

ROOT = Path(__file__).resolve().parents[3]
LOCUST = [sys.executable, "-m", "locust", "-f", "loadtests/locustfile.py", "--headless", "--only-summary"]
LOCUST_SECONDS = 120
SLOW_MS = 2_500
PAUSE_SECONDS = 1.0
SLOS = "[steady]\navailability_percent = 99\np50_ms = 1500\nasked_percent = 50\nrefused_percent = 0\n"


@contextmanager
def served(folder: Path, database_url: str, model_port: int):
    """A proxy of one version, with a deadline that no busy machine misses."""
    with a_stack(folder, database_url) as stack:
        version = asyncio.run(register(database_url, 1, [model_port], timeout_ms=20_000, cache_ttl_seconds=0))
        policy = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)"
        asyncio.run(sql(database_url, policy, version))
        stack.start_proxy()
        yield stack


def locust(port: int, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*LOCUST, "--host", f"http://127.0.0.1:{port}", *arguments]
    given = {**os.environ, **environment}
    return subprocess.run(
        command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=LOCUST_SECONDS, check=False
    )


def test_a_load_of_seconds_gives_figures_that_are_judged_and_its_answers_are_the_logs(
    tmp_path, database_url, model_port
):
    inputs = tmp_path / "inputs.jsonl"
    inputs.write_bytes(b"\n".join(orjson.dumps({"inputs": orjson.loads(b)["inputs"]}) for b in PREDICT_BODIES[:20]))
    with served(tmp_path, database_url, model_port("visits:1")) as stack:
        asked = Asked(f"http://127.0.0.1:{stack.proxy_port}", "visits", "steady", 40, 3, inputs)
        with LocustRun(asked, tmp_path / "report.html", tmp_path) as run:
            run.wait_until(0.5)
            time.sleep(PAUSE_SECONDS)  # as a command does that is slow to start
            recorded = run.recorded()

        identifiers = {answer.prediction_id for answer in recorded.answers}
        rows = asyncio.run(logged_ids(database_url, identifiers))

    figures = figures_of(recorded)
    assert set(answered_by(recorded.answers)) == {"version 1"}
    assert recorded.planned >= len(recorded.answers) > 60
    assert recorded.lasted >= 3 + PAUSE_SECONDS  # what is done meanwhile takes nothing from what was to follow
    assert len(identifiers) == len(recorded.answers) == len(rows)
    assert log_figures(recorded.answers, dict.fromkeys(rows, 1)) == {"missing_rows": 0, "doubled_rows": 0}
    assert all(one.due <= one.sent < one.ended for one in recorded.answers)
    assert 0 < figures["p50_ms"] <= figures["p95_ms"] <= figures["p99_ms"]
    wanted = "availability_percent = 100\nrefused_percent = 0\nfallback_percent = 0\nlate_percent = 0"
    assert broken(judge(parse_slos(f"[steady]\n{wanted}"), "steady", figures)) == []
    assert "predict: version 1" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.mark.alone
@pytest.mark.parametrize(("slow_ms", "status"), [(0, 0), (SLOW_MS, 1)])
def test_locust_alone_leaves_with_the_verdict_on_your_objectives(tmp_path, database_url, model_port, slow_ms, status):
    slo = tmp_path / "slo.toml"
    slo.write_text(SLOS)
    with served(tmp_path, database_url, model_port(f"visits:1,latency_ms={slow_ms}")) as stack:
        asked = ["-u", "60", "-r", "60", "-t", "4s", "--rate", "20", "--model", "visits", "--slo", str(slo)]
        done = locust(stack.proxy_port, *asked)

    assert done.returncode == status, done.stdout + done.stderr
    assert ("✔ all 4 objectives are met" in done.stdout) is not bool(status)
    assert ("steady: p50_ms is " in done.stdout) is bool(status)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", ""], "no --model: name one of those that `understudy model list` shows"),
        (["--rate", "0"], "--rate 0: expected more than 0"),
        (["--inputs", "{folder}/empty"], "is empty: write a predict call's body on each line"),
        (["--inputs", "{folder}/bad"], 'bad:2: expected an object with "inputs"'),
        (["--slo", "{folder}/slo"], "p99_s: wrong unit: p99 is measured in ms"),
        (["--slo", "{folder}/good", "--scenario", "burst"], "nothing is asked of burst"),
        ([], "http://127.0.0.1:9/v1/models/visits: no example call of the model to be had"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_before_anything_is_asked(tmp_path, arguments, said):
    (tmp_path / "empty").touch()
    (tmp_path / "bad").write_text('{"inputs": {}}\n[1]\n')
    (tmp_path / "slo").write_text("[steady]\np99_s = 1\n")
    (tmp_path / "good").write_text("[steady]\np99_ms = 1\n")

    done = locust(9, "-t", "2s", "--model", "visits", *(one.format(folder=tmp_path) for one in arguments))

    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"LOAD_MODEL": "none"}, "HTTP Error 404: Not Found; see `understudy model list`"),
        ({"UNDERSTUDY_CREDENTIAL": "1.wrong"}, "HTTP Error 401: Unauthorized; UNDERSTUDY_CREDENTIAL takes a key"),
    ],
)
def test_what_the_proxy_refuses_is_said_with_what_to_do(tmp_path, database_url, model_port, wrong, said):
    with served(tmp_path, database_url, model_port("visits:1")) as stack:
        done = locust(stack.proxy_port, "-t", "2s", **{"LOAD_MODEL": "visits", **wrong})

    assert done.returncode == 2, done.stdout + done.stderr
    assert said in done.stderr


def test_a_load_that_locust_refuses_is_told_with_what_it_said(tmp_path):
    inputs = tmp_path / "inputs.jsonl"
    inputs.touch()

    with (
        pytest.raises(LocustFailed, match="is empty: write a predict call's body"),
        LocustRun(Asked("http://127.0.0.1:9", "visits", "steady", 1, 2, inputs), tmp_path / "r.html", tmp_path),
    ):
        pass
