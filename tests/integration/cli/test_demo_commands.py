"""What the demo offers to do next, run by a shell as it is printed, against a real Postgres and real model servers."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.stack import register, sql

from understudy.bootstrap.psql import find_psql
from understudy.entrypoints.cli.demo.screen import next_commands
from understudy.entrypoints.demo.places import Demo

pytestmark = pytest.mark.timeout(240)
FOLLOWS = "rollout watch"
"""Waits for a monitor, which is none of these tests'."""


@pytest.fixture(autouse=True)
async def _standing(database_url: str, model_port: Callable[[str], int]) -> None:
    """Model ``visits`` as the demo has it: champion 1, and versions 2 and 3."""
    champion = await register(database_url, 1, [model_port("visits:1")])
    await register(database_url, 2, [model_port("visits:2")])
    await register(database_url, 3, [model_port("visits:3")])
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", champion)


def pasted(lines: list[str], database_url: str) -> subprocess.CompletedProcess[str]:
    """Run commands as a person who pastes them does; what each ends with is written after what it says."""
    commands = re.split(r"\n(?=  \S)", "\n".join(lines))  # the further lines of one are indented
    own = Path(sys.executable).parent
    environment = os.environ | {"DATABASE_URL": database_url, "PATH": f"{own}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-c", "".join(f'{command}; echo "ends with $?"\n' for command in commands)],
        capture_output=True, text=True, check=False, timeout=200, env=environment, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("is_scenario", [False, True], ids=["without traffic", "with traffic"])
def test_what_a_demo_offers_to_do_next_runs_as_it_is_printed(database_url, tmp_path, is_scenario):
    lines = [line for line in next_commands(Demo(tmp_path), is_scenario=is_scenario) if FOLLOWS not in line]

    done = pasted(lines, database_url)

    ends = [line.removeprefix("ends with ") for line in done.stdout.splitlines() if line.startswith("ends with ")]
    # No proxy runs here that could say that it acts on a rollback.
    unconfirmed = ["3"] if "no live proxy" in done.stdout else []
    assert [end for end in ends if end != "0"] == unconfirmed, done
    assert any("db psql" in line for line in lines) == (find_psql() is not None)
    assert ("has begun: the warm-up comes first" in done.stdout) == (not is_scenario)
