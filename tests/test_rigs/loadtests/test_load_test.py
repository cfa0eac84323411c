"""``make loadtest``'s own command: what it does to the product happens, and what it finds is written down."""

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from loadtests.machine import what_is_missing

pytestmark = pytest.mark.timeout(450)
ROOT = Path(__file__).resolve().parents[3]
SECONDS = 6
MAX_SECONDS = 400
# What a busy machine may do to latencies is not the question here.
ASKED = """
availability_percent = 50
refused_percent = 0
asked_percent = 50
missing_rows = 0
doubled_rows = 0
"""
MORE = {
    "weight-flip": "stale_ms = 4000\n",
    "dead-challenger": "fallback_percent = 70\n",
    "cold-cache": "cache_hit_percent = 10\n",
}


def loadtest(folder: Path, slos: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    slo = folder / "slo.toml"
    slo.write_text(slos)
    command = [sys.executable, "-m", "loadtests.loadtest", "--slo", str(slo), "--reports", str(folder / "reports")]
    environment = {**os.environ, "PYTHONPATH": "tests", "COLUMNS": "80"}
    return subprocess.run(
        [*command, *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=MAX_SECONDS, check=False,
    )  # fmt: skip


@pytest.mark.skipif(bool(what_is_missing(())), reason="needs Linux and two cores")
def test_the_flip_the_death_and_the_cold_cache_happen_and_every_answer_is_in_the_log(tmp_path):
    slos = "".join(f"[{name}]{ASKED}{more}" for name, more in MORE.items())

    done = loadtest(tmp_path, slos, "--only", *MORE, "--seconds", str(SECONDS), "--rate", "60")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("✔ all 18 objectives of 3 scenarios are met\n")
    result = orjson.loads((tmp_path / "reports" / "result.json").read_bytes())
    assert all(one["holds"] for one in result["scenarios"].values())
    flipped, dead, cold = (result["scenarios"][name]["answered"] for name in MORE)
    assert set(flipped) >= {"version 1", "version 2"}
    assert set(dead) >= {"version 1", "version 2", "version 1 (fallback)"}
    # 240 calls are due after the change, however long it takes, and there are 100 inputs.
    assert set(cold) >= {"version 1", "version 1 (cached)", "version 2", "version 2 (cached)"}
    reports = {path.name for path in (tmp_path / "reports").iterdir()}
    assert reports == {"index.html", "result.json", *(f"{name}.html" for name in MORE)}


@pytest.mark.skipif(bool(what_is_missing(())), reason="needs Linux and two cores")
def test_a_planted_slow_model_server_breaks_an_objective_and_it_is_said_which(tmp_path):
    done = loadtest(
        tmp_path,
        "[steady]\np50_ms = 250\n",
        "--only",
        "steady",
        "--plant",
        "slow-backend",
        "--seconds",
        "4",
        "--rate",
        "30",
    )

    assert done.returncode == 1, done.stdout + done.stderr
    assert "✖ steady: p50_ms is " in done.stdout
    assert "ms too high (should be at most 250 ms)" in done.stdout
