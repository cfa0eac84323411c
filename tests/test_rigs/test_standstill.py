"""A test is run again only when the machine stood still, which a stopped process shows as a paused machine does."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
A_TEST = """
import pathlib, pytest, time

{mark}
def test_fails():
    pathlib.Path({began!r}).touch()
    time.sleep(0.3)
    raise ValueError("as ever")
"""


def outcome_of(tmp_path: Path, *, pause_seconds: float, mark: str) -> str:
    """Run a failing test in a pytest of its own, and stop that process meanwhile."""
    began = tmp_path / "began"
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(A_TEST.format(began=str(began), mark=mark))
    options = ["--reruns", "2", "--only-rerun", "MachineStoodStill", "-p", "no:randomly", "-q", "-rR"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, "--rootdir", str(tmp_path), "test_it.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    while not began.exists():
        assert process.poll() is None
        time.sleep(0.01)
    if pause_seconds:
        process.send_signal(signal.SIGSTOP)
        time.sleep(pause_seconds)
        process.send_signal(signal.SIGCONT)
    return process.communicate(timeout=60)[0]


@pytest.mark.parametrize(
    ("mark", "pause_seconds", "reruns"),
    [("", 0, 0), ("", 1, 1), ("@pytest.mark.alone", 0, 0), ("@pytest.mark.alone", 0.3, 1)],
)
def test_only_a_failure_during_a_standstill_is_run_again(tmp_path, mark, pause_seconds, reruns):
    output = outcome_of(tmp_path, pause_seconds=pause_seconds, mark=mark)

    assert output.count("RERUN") == reruns, output
    assert "1 failed" in output
    assert "ValueError: as ever" in output
