"""One run of locust in a process of its own: it replaces the sockets of the one that it is imported into."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Self

from loadtests.answers import Recorded, read_record
from loadtests.result import ROOT

CALLERS = 100
"""Connections: 150 requests a second wait for nobody until answers take two thirds of a second."""
_BEGIN_SECONDS = 60.0
_END_SECONDS = 40.0
_MEANWHILE_SECONDS = 180.0
"""What is done to the product may take so long altogether; then the load ends by itself."""
_POLL_SECONDS = 0.02


class Asked(NamedTuple):
    """What a load is to be."""

    host: str
    model: str
    scenario: str
    per_second: float
    seconds: float
    inputs: Path


class LocustFailed(Exception):
    """locust did not make the load; says what it said."""


class LocustRun:
    """A load that goes on; leave the block to end it.

    Its time does not run while something is done to the product: what was to come before and after that comes, however
    long a busy machine takes for the change.

    Args:
        asked: The load.
        html: Where locust's own report goes.
        folder: For answers and what locust says.
        environment: Variables of its process beside those of this one.
    """

    def __init__(self, asked: Asked, html: Path, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._seconds = asked.seconds
        self._answers = folder / f"{asked.scenario}.jsonl"
        self._answers.unlink(missing_ok=True)
        self._log = folder / f"{asked.scenario}.log"
        command = [
            sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--headless",
            "--host", asked.host, "--model", asked.model, "--scenario", asked.scenario,
            "--rate", str(asked.per_second), "--inputs", str(asked.inputs), "--answers", str(self._answers),
            "-u", str(CALLERS), "-r", str(CALLERS), "-t", f"{asked.seconds + _MEANWHILE_SECONDS:.0f}s",
            "--html", str(html), "--only-summary",
        ]  # fmt: skip
        with self._log.open("wb") as log:
            self._locust = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=ROOT, env={**os.environ, **(environment or {})}
            )
        self._share = 0.0

    def __enter__(self) -> Self:
        """Wait until it has begun.

        Raises:
            LocustFailed: It has not.
        """
        try:
            self._await_beginning()
        except BaseException:  # a signal too: nobody leaves a block that was not entered
            self.__exit__()
            raise
        return self

    def _await_beginning(self) -> None:
        give_up = time.monotonic() + _BEGIN_SECONDS
        while not (self._answers.exists() and self._answers.stat().st_size):
            if self._locust.poll() is not None or time.monotonic() > give_up:
                raise LocustFailed(f"locust did not begin:\n{self._said()}")
            time.sleep(_POLL_SECONDS)

    def __exit__(self, *_: object) -> None:
        if self._locust.poll() is None:
            self._locust.terminate()
            try:
                self._locust.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._locust.kill()
                self._locust.wait()

    def wait_until(self, share: float) -> None:
        """Wait until so much of its time is over; 0 is its beginning, 1 its end."""
        try:
            self._locust.wait(max(0.0, share - self._share) * self._seconds)
        except subprocess.TimeoutExpired:
            self._share = share

    def recorded(self) -> Recorded:
        """Wait until its time is over, end it, and return what it saw.

        Raises:
            LocustFailed: It did not end in time.
            BadRecord: It ended before its time.
        """
        self.wait_until(1.0)
        self._locust.send_signal(signal.SIGUSR1)
        try:
            self._locust.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            raise LocustFailed(f"locust does not end:\n{self._said()}") from None
        return read_record(self._answers)

    def _said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")[-3000:]
