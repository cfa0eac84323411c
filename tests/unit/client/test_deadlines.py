"""The client that waits keeps its one deadline, whatever a server sends until then."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import orjson
import pytest

from understudy.client import Client, Entity, Receipt, Retries
from understudy.errors import DeadlineExceeded

SECONDS = 0.5
SLOW_SECONDS = 0.05
"""Between two pieces: each read is in time."""
LONGEST = 60
"""Pieces that a server sends: 3 s of them."""


@contextmanager
def dripping(first: bytes, piece: bytes) -> Iterator[str]:
    """Run a server that answers each connection with ``first`` and then ``piece`` again and again; give its address."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(first)
                for _ in range(LONGEST):
                    if over.wait(SLOW_SECONDS):
                        return
                    connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nx-long: ", b"a"),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    ],
    ids=["a head in pieces", "early hints", "a body in pieces"],
)
def test_a_server_that_drips_holds_a_call_no_longer_than_its_deadline(first, piece):
    with dripping(first, piece) as url, Client(url, timeout_seconds=SECONDS, retries=Retries(1)) as client:
        began = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            client.predict("visits", Entity("e", {}))

        assert SECONDS <= time.monotonic() - began < LONGEST * SLOW_SECONDS / 2


def test_a_host_of_several_addresses_is_reached_at_the_one_that_answers():
    answer = orjson.dumps(dict.fromkeys(Receipt._fields))  # "localhost" is ::1 as well on most machines
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer)
    with dripping(head, answer) as url, Client(url.replace("127.0.0.1", "localhost"), retries=Retries(1)) as client:
        assert client.receipt("visits", "e").version is None


@pytest.mark.deep
def test_a_server_that_takes_no_body_holds_a_call_no_longer_than_its_deadline():
    with socket.create_server(("127.0.0.1", 0)) as server:  # it accepts nothing, and the system a few MB at most
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with Client(url, timeout_seconds=SECONDS, retries=Retries(1)) as client:
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                client.predict("visits", Entity("e", {"x": "a" * 32_000_000}))

            assert time.monotonic() - began < 5
