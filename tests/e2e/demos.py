"""Demos as processes of their own, for the tests that start them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

START_SECONDS, STOP_SECONDS = 120.0, 60.0
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
