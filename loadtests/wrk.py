"""The load: wrk, as many requests as its connections can have answered, or fewer with a time to think."""

import json
import subprocess
from pathlib import Path
from typing import Literal, NamedTuple

from loadtests.machine import find_program

CONNECTIONS = 64
_SCRIPT = Path(__file__).with_name("predict.lua")
_MARGIN_SECONDS = 20

Form = Literal["native", "oip", "binary", "v1", "rows", "chat"]
"""Of the body: Understudy's own; the Open Inference Protocol's REST, in JSON, with its tensor as bytes, or of 64 rows;
KServe V1's; or a chat completion with the same in its text."""
Heads = Literal["differs", "repeats"]
"""Whether each request's head has a value of its own, as one with a trace or a request id has, or all are the same."""


class Load(NamedTuple):
    """What is sent: with a ``seed`` the same inputs in every run; ``think_ms`` on average before each request."""

    connections: int = CONNECTIONS
    form: Form = "native"
    seed: int = 0
    think_ms: float = 0.0
    features: int = 13
    heads: Heads = "differs"


class Answered(NamedTuple):
    """What one run of wrk saw. ``not_200`` counts statuses from 400 on, ``broken`` connections and time-outs."""

    requests: int
    seconds: float
    not_200: int
    broken: int
    p50_ms: float = 0.0
    p99_ms: float = 0.0

    @property
    def per_second(self) -> float:
        """Requests answered in a second of wall-clock time."""
        return self.requests / self.seconds


FULL = Load()


def run_wrk(url: str, seconds: float, load: Load = FULL) -> Answered:
    """Load ``url`` with predict calls for whole ``seconds``; what is on its way at the end is not counted."""
    command = [find_program("wrk") or "wrk", "-t1", f"-c{load.connections}", f"-d{seconds:.0f}s", "-s", str(_SCRIPT)]
    command += [url, "--", load.form, str(load.seed), str(load.think_ms), str(load.features), load.heads]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _MARGIN_SECONDS, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"wrk failed: {done.stderr or done.stdout}")
    said = json.loads(lines[0].removeprefix("RESULT "))
    return Answered(
        said["requests"],
        said["microseconds"] / 1e6,
        said["not_200"],
        said["broken"],
        said["p50_us"] / 1000,
        said["p99_us"] / 1000,
    )
