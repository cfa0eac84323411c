"""Sockets of this process that listen for gRPC's library, and have to stop before the library's server does.

The library closes its listening sockets and refuses calls in one step. A worker that leaves has to take no new
connection while its old ones still have their calls answered.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/dev/fd")
"""This process's own, on Linux and on macOS."""


def stop_listening(port: int) -> int:
    """Have this process take no further connection at a TCP port; return how many sockets listened there.

    Connections that were accepted go on. The descriptors stay gRPC's library's, which closes them at its own end.
    """
    found = 0
    for listener in _listeners(port):
        with listener, suppress(OSError):  # a system that cannot does as before: it accepts until the server stops
            listener.shutdown(socket.SHUT_RDWR)
            found += 1
    return found


def _listeners(port: int) -> Iterator[socket.socket]:
    """Yield sockets that listen at a port, with descriptors of their own."""
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - the names alone: the descriptor of the listing is one of them
        with suppress(OSError, ValueError):
            one = socket.socket(fileno=os.dup(int(name)))
            if _listens(one, port):
                yield one
            else:
                one.close()


def _listens(one: socket.socket, port: int) -> bool:
    is_tcp = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
    return is_tcp and bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)) and one.getsockname()[1] == port
