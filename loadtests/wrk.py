"""The load: wrk, as many requests as 64 connections can have answered."""

import json
import subprocess
from pathlib import Path
from typing import NamedTuple

from loadtests.machine import find_program

CONNECTIONS = 64
_SCRIPT = Path(__file__).with_name("predict.lua")
_MARGIN_SECONDS = 20


class Answered(NamedTuple):
    """What one run of wrk saw. ``not_200`` counts statuses from 400 on, ``broken`` connections and time-outs."""

    requests: int
    seconds: float
    not_200: int
    broken: int


def run_wrk(url: str, seconds: int) -> Answered:
    """Load ``url`` with distinct predict calls for ``seconds``; what is on its way at the end is not counted."""
    command = [find_program("wrk") or "wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "-s", str(_SCRIPT), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _MARGIN_SECONDS, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"wrk failed: {done.stderr or done.stdout}")
    said = json.loads(lines[0].removeprefix("RESULT "))
    return Answered(said["requests"], said["microseconds"] / 1e6, said["not_200"], said["broken"])
