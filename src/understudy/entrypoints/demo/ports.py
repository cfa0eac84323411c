"""Ports that two demos cannot take at once.

Whether a port is free is known only once the proxy has bound it, seconds later; until then another demo would find it
free as well, and would take the first demo's proxy for its own.
"""

import fcntl
import socket
import tempfile
from contextlib import ExitStack
from pathlib import Path

from understudy.adapters.child_process import free_port

LOOPBACK = "127.0.0.1"


class PortClaims:
    """The ports of one demo, claimed until :meth:`release` or the end of the process."""

    def __init__(self) -> None:
        self._held = ExitStack()

    def take(self, port: int) -> bool:
        """Claim a port; ``False`` when somebody listens on it or another demo has claimed it."""
        try:
            lock = self._held.enter_context((Path(tempfile.gettempdir()) / f"understudy-demo-{port}.lock").open("a"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # held, or another user's
            return False
        return is_free(port)

    def take_or_another(self, port: int) -> int:
        """Claim a port, or a free one in its place, and return which."""
        while not self.take(port):
            port = free_port()
        return port

    def release(self) -> None:
        """Give the ports back."""
        self._held.close()


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of the loopback address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
