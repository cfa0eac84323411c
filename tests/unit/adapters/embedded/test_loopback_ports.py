"""Ports for our own processes: free, no other process's, and no outgoing connection's."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.adapters.embedded.loopback_ports import LOOPBACK, claim, free_port, give_back, is_free

OUTGOING = Path("/proc/sys/net/ipv4/ip_local_port_range")


@contextmanager
def another_process(code: str) -> Iterator[str]:
    """Run code that prints one line, and keep its process until the end of the block."""
    lines = f"import socket\nfrom understudy.adapters.embedded.loopback_ports import claim, free_port\n{code}\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", lines], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate("\n", timeout=60)


@pytest.fixture
def port() -> Iterator[int]:
    chosen = free_port()
    yield chosen
    give_back(chosen)


def test_a_port_is_free_until_a_process_listens(port):
    before = is_free(port)

    with socket.create_server((LOOPBACK, port)):
        during = is_free(port)

    assert (before, during) == (True, False)


def test_a_claimed_port_is_no_other_process_s_until_it_is_given_back(port):
    again = claim(port)
    with another_process(f"print(claim({port}))") as said:
        elsewhere = said
    give_back(port)

    with another_process(f"print(claim({port}))") as said:
        after = said
        while_theirs = claim(port)
    ours_again = claim(port)

    assert (again, elsewhere, after, while_theirs, ours_again) == (False, "False", "True", False, True)


def test_a_port_that_a_process_listens_on_is_not_claimed(port):
    give_back(port)
    with socket.create_server((LOOPBACK, port)):
        refused = claim(port)

    assert (refused, claim(port)) == (False, True)


def test_no_port_is_given_twice_in_one_process_or_in_two():
    ours = [free_port() for _ in range(200)]

    with another_process("print(*(free_port() for _ in range(200)))") as said:
        theirs = [int(word) for word in said.split()]

    for one in ours:
        give_back(one)
    assert len({*ours, *theirs}) == 400


@pytest.mark.skipif(not OUTGOING.exists(), reason="the system does not tell its range")
def test_no_outgoing_connection_is_given_such_a_port(port):
    first, last = map(int, OUTGOING.read_text().split())

    assert not first <= port <= last


def test_when_all_ports_are_taken_it_is_said(port):
    with pytest.raises(OSError, match=f"none of the ports {port} to {port} is free on 127.0.0.1"):
        free_port(range(port, port + 1))


def test_a_file_of_claims_that_cannot_be_used_is_named_instead_of_all_ports_being_taken(tmp_path):
    code = "from understudy.adapters.embedded.loopback_ports import free_port\nfree_port()"

    done = subprocess.run(
        [sys.executable, "-c", f"import tempfile\ntempfile.tempdir = {str(tmp_path / 'away')!r}\n{code}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert "away/understudy-ports-" in done.stderr.splitlines()[-1]
