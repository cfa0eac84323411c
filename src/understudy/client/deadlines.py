"""A deadline for what the library does on its sockets until an answer is complete.

The library has one time-out for each read, write and connection: a server that sends a byte now and then, or one
interim answer after the other, never lets one of them pass. Here each of them has what is left until the deadline.
"""

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

_WRITTEN_BYTES = 16_384
"""Of a body at once: the library begins its time-out anew with each piece that the system takes."""
_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]


class Deadline(threading.local):
    """When the call of this thread ends, by the monotonic clock; threads share a client and not its calls."""

    ends_at: float | None = None

    @contextmanager
    def within(self, ends_at: float) -> Iterator[None]:
        """Have a deadline for what this thread does meanwhile."""
        self.ends_at = ends_at
        try:
            yield
        finally:
            self.ends_at = None

    def left(self, timeout: float | None, late: type[httpcore2.TimeoutException]) -> float | None:
        """Return the seconds for one step.

        Raises:
            httpcore2.TimeoutException: The kind ``late``: no time is left.
        """
        if self.ends_at is None:
            return timeout
        left = self.ends_at - time.monotonic()
        if left <= 0:
            raise late
        return left if timeout is None else min(timeout, left)


def bound_by(client: httpx2.Client, deadline: Deadline) -> None:
    """Have all connections of a client keep a deadline, those through an HTTP proxy of the environment too."""
    for transport in (client._transport, *client._mounts.values()):  # noqa: SLF001 - its arguments name no backend
        if isinstance(transport, httpx2.HTTPTransport):
            pool = transport._pool  # noqa: SLF001 - as above
            pool._network_backend = _Network(pool._network_backend, deadline)  # noqa: SLF001 - as above


class _Network(httpcore2.NetworkBackend):
    def __init__(self, network: httpcore2.NetworkBackend, deadline: Deadline) -> None:
        self._network = network
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connect to the first address of a host that answers: each one would have the whole time-out."""
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as problem:
            raise httpcore2.ConnectError(str(problem)) from problem
        for *_, address in found:
            left = self._deadline.left(timeout, httpcore2.ConnectTimeout)
            try:
                stream = self._network.connect_tcp(str(address[0]), port, left, local_address, socket_options)
            except httpcore2.ConnectError as problem:
                failure = problem
            else:
                return _Stream(stream, self._deadline)
        raise failure


class _Stream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.left(timeout, httpcore2.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITTEN_BYTES):
            piece = buffer[start : start + _WRITTEN_BYTES]
            self._stream.write(piece, self._deadline.left(timeout, httpcore2.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = self._deadline.left(timeout, httpcore2.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
