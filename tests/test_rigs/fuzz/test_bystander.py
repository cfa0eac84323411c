"""The process that asks beside an attack."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SECONDS = 20.0
RUN = """
import subprocess, sys
asked = [sys.executable, "-m", "rigs.fuzz.bystander", "1", "1", "visits", "{}"]
child = subprocess.Popen(asked, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
child.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="whether a process runs is read from /proc")
def test_it_ends_with_the_run_that_began_it_also_when_that_is_killed():
    with subprocess.Popen([sys.executable, "-c", RUN], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        bystander = int(run.stdout.readline())

        run.send_signal(signal.SIGKILL)

    give_up = time.monotonic() + SECONDS
    while is_running(bystander):
        assert time.monotonic() < give_up
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False
