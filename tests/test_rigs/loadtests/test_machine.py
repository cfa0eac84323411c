"""Who goes first on a core that several share."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loadtests.machine import giving_way, threads_of

_WAITS = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(flush=True)
input()
"""


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", _WAITS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    child.communicate(b"\n")


def test_all_threads_of_a_process_give_way_meanwhile(waiting):
    threads = threads_of(waiting.pid)
    before = [os.sched_getscheduler(one) for one in threads]

    with giving_way(waiting.pid):
        meanwhile = [os.sched_getscheduler(one) for one in threads]

    assert len(threads) == 2
    assert meanwhile == [os.SCHED_IDLE] * 2
    assert [os.sched_getscheduler(one) for one in threads] == before
