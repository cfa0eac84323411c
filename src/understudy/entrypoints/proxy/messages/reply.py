"""A predict call and its reply as plain values: what the handlers take and return, whatever the transport."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeAlias

from understudy.entrypoints.proxy.messages.headers import RawHeaders

Header: TypeAlias = tuple[bytes, bytes]
JSON: Header = (b"content-type", b"application/json")
JSON_ALONE: tuple[Header, ...] = (JSON,)
"""The headers of an answer that has no others of its own."""
JSON_LINES = b"%b: %b\r\n" % JSON


class Reply(NamedTuple):
    """An HTTP answer; its ``content-length`` is added where it is written."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class HttpCall(NamedTuple):
    """A predict call as received; its body is read once the caller is admitted, and not before."""

    path: str
    headers: RawHeaders
    read_body: Callable[[], Awaitable[bytes]]
    hold: Callable[[int], None]
    """Counts bytes that were made of the body, as long as the request lasts; raises ``Overloaded`` without room."""
