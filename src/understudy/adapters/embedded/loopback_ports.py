"""TCP ports of the loopback address that no two of our processes use at once.

A port is taken only once a server has bound it, seconds after it was chosen. In between another process would find it
free as well, and an outgoing connection could get it as its local port. So ports are chosen below the range of outgoing
connections (ephemeral ports), and a chosen one is claimed until it is released or the process ends.
"""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from itertools import chain
from pathlib import Path

LOOPBACK = "127.0.0.1"
# Linux gives 32768 to 60999 to outgoing connections, macOS and RFC 6335 49152 to 65535.
CHOSEN_FROM = range(20_000, 30_000)

_claimed: set[int] = set()


def free_port(chosen_from: range = CHOSEN_FROM) -> int:
    """Claim a port on which no server listens, until the process ends, and return it.

    Raises:
        OSError: No port is left, or the file of claims cannot be used.
    """
    start = random.randrange(len(chosen_from))  # so that processes seldom try the same one
    for port in chain(chosen_from[start:], chosen_from[:start]):
        if claim(port):
            return port
    raise OSError(f"none of the ports {chosen_from[0]} to {chosen_from[-1]} is free on {LOOPBACK}")


def claim(port: int) -> bool:
    """Claim a port; ``False`` when a server listens on it, or it is claimed, by this or another process."""
    if port in _claimed or not _lock(port):
        return False
    _claimed.add(port)
    if is_free(port):
        return True
    give_back(port)
    return False


def give_back(port: int) -> None:
    """Release the claim on a port."""
    if port in _claimed:
        _claimed.remove(port)
        fcntl.lockf(_claims(), fcntl.LOCK_UN, 1, port)


def is_free(port: int) -> bool:
    """Whether no server listens on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def _lock(port: int) -> bool:
    claims = _claims()
    try:
        fcntl.lockf(claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):  # another process has it
        return False
    return True


@cache
def _claims() -> int:
    """Open the file whose bytes are locked, one for each port: the kernel releases the locks however the process ends.

    It stays open: a process that closes any handle of a file loses all its locks on it (POSIX).
    """
    path = Path(tempfile.gettempdir()) / f"understudy-ports-{os.getuid()}.lock"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
