"""Parses requests; one that asks for another protocol, as the request that it is without that (RFC 9110 §7.8).

Java's own client asks for HTTP/2 with its first call. uvicorn's parser takes such a request to end with its head, so
that its body would be lost: the head is written again without the fields that ask, and parsed again.
"""

import logging
import time
from collections.abc import Callable, Iterable

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_FIELDS = frozenset((b"upgrade", b"http2-settings"))
"""Header fields that ask for another protocol, and that ``connection`` names then."""

LINE_SECONDS = 1.0
"""Shortest time between two lines in the log about requests that are no HTTP: a client may send thousands a second."""


class InvalidRequests:
    """Counts requests that are no HTTP, and logs at most one line in :data:`LINE_SECONDS`, with their number.

    Args:
        now: A clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._count = 0
        self._logged_at = float("-inf")

    def note(self, logger: logging.Logger) -> None:
        """Count one; those since the last line are named by the next one."""
        self._count += 1
        now = self._now()
        if now - self._logged_at >= LINE_SECONDS:
            logger.warning("Invalid HTTP requests received: %d", self._count)
            self._logged_at, self._count = now, 0


_invalid_requests = InvalidRequests()


def parse(connection: HttpToolsProtocol, data: bytes) -> bool:
    """Give bytes to a connection's parser, and refuse what is no HTTP; return whether more may follow."""
    while True:
        try:
            connection.parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            method, version = connection.parser.get_method(), connection.parser.get_http_version()
            if method == b"CONNECT":
                return False  # it is answered; what follows is not for this server
            data = _without_upgrade(method, connection.url, version, connection.headers) + data[upgrade.args[0] :]
            connection.parser = HttpRequestParser(connection)
            connection.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        except HttpParserError:
            _invalid_requests.note(connection.logger)
            connection.send_400_response("Invalid HTTP request received.")
            return False
        else:
            return True


def _without_upgrade(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the bytes of a request's head, without what asks for another protocol."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"connection":
            tokens = [token for token in value.split(b",") if token.strip().lower() not in _FIELDS]
            lines.append(b"connection:" + b",".join(tokens))
        elif name not in _FIELDS:
            lines.append(b"%b: %b" % (name, value))
    return b"\r\n".join((*lines, b"", b""))
