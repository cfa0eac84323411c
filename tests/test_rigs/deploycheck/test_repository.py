"""What is in the repository passes every check; what a check needs and is not here is said."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rigs.deploycheck.__main__ import CHECKS, run

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_repository_has_no_mistake(check, found):
    assert [str(finding) for finding in found(check.run, ROOT)] == []


def test_a_check_whose_program_is_missing_is_named_and_is_a_mistake_where_nothing_may_be_left_out(
    a_copy, monkeypatch, capsys
):
    monkeypatch.setenv("PATH", "/nowhere")

    assert run(a_copy, strict=False) == 0
    said = capsys.readouterr().out
    assert "! manifests: kustomize: NOT CHECKED. kubectl is not here" in said
    assert run(a_copy, strict=True) == 1


def test_the_command_says_what_it_judged_and_fails_for_a_mistake(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "rigs.deploycheck"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CHECKS)} checks" in done.stdout or "checks left out" in done.stdout


@pytest.mark.timed
def test_all_of_it_takes_less_than_a_minute(a_copy, capsys):
    run(a_copy, strict=False)

    seconds = float(capsys.readouterr().out.rpartition(" checks in ")[2].partition(" s:")[0])
    assert seconds < 60
