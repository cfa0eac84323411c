"""Who goes first on a core that several share."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from loadtests.machine import giving_way


@pytest.fixture
def waiting() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield child
    child.communicate(b"\n")


def test_a_process_gives_way_meanwhile_and_no_process_is_put_further_ahead_than_it_was(waiting):
    before = os.getpriority(os.PRIO_PROCESS, waiting.pid)

    with giving_way(waiting.pid):
        meanwhile = os.getpriority(os.PRIO_PROCESS, waiting.pid)

    assert meanwhile == max(10, before)
    assert os.getpriority(os.PRIO_PROCESS, waiting.pid) in (before, meanwhile)
