"""The notebook of ``docs/how-to``: every cell runs beside a demo, and its frames have what the text above them says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from e2e.demos import OWN, STOP_SECONDS, start

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "analyse.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if cell["cell_type"] == "code"]
IN_A_LOOP = """
import asyncio, json, sys

async def kernel():  # notebooks run cells while an event loop runs
    names = {}
    for cell in json.load(open(sys.argv[1]))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    return names

names = asyncio.run(kernel())
by_version, scores, asked, evidence = (names[one] for one in ("by_version", "scores", "asked", "evidence"))
print(json.dumps({
    "versions": sorted(by_version.index), "failed": round(float(by_version["failed"]["3"]), 3),
    "minutes": scores.height, "asked": sorted(asked["version"]), "tests": list(names["tests"].columns),
    "checks": sorted(set(evidence["check"])), "evidence": evidence.height,
}))
"""


def test_it_is_kept_without_what_a_run_left_in_it():
    assert [cell["id"] for cell in CELLS if cell["outputs"] or cell["execution_count"] is not None] == []


@pytest.mark.followed
@pytest.mark.timeout(300)
def test_every_cell_runs_beside_a_demo_that_took_a_version_back(short_path: Path):
    demo = start(short_path)
    try:
        assert demo.stdout is not None
        told = next((line for line in demo.stdout if "version 3 rolled back" in line), None)
        environment = {name: value for name, value in os.environ.items() if name not in OWN}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", IN_A_LOOP, str(NOTEBOOK)],
            env={**environment, "UNDERSTUDY_STATE_DIR": str(short_path)}, capture_output=True, text=True, timeout=90,
            check=False,
        )  # fmt: skip
    finally:
        demo.terminate()
        demo.communicate(timeout=STOP_SECONDS)

    assert told is not None
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"1", "3"} <= set(found["versions"])
    assert set(found["versions"]) <= set(found["asked"]) <= {"1", "2", "3"}, "shadows are left out"
    assert found["failed"] > 0, "the champion answered in place of version 3, whose failures these are"
    assert found["minutes"] >= 2
    assert {"error_rate", "typical_latency"} <= set(found["checks"])
    assert found["evidence"] >= len(found["checks"])
    assert "sentence" in found["tests"]
