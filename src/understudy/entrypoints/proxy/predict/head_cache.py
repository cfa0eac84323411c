"""Head cache: a client on a kept connection sends the same bytes of a request's head again and again.

It keeps what the HTTP parser made of a head, by the head's bytes: a cache of the parser, and no second parser.
"""

from typing import NamedTuple

from understudy.entrypoints.proxy.messages.headers import NAMES_REQUEST, HeaderFields, RequestOptions

MAX_HEADS = 1_024
MAX_HEAD = 2_048
"""Bytes. Together they bound what callers can make a process keep: 2 MiB."""
_END = b"\r\n\r\n"


class CachedHead(NamedTuple):
    """A parsed head."""

    path: str
    model_name: str
    options: RequestOptions
    body_bytes: int


class HeadCache:
    """Heads of plain predict calls, by their bytes. When it is full, all are dropped and learnt anew."""

    def __init__(self) -> None:
        self._heads: dict[bytes, CachedHead] = {}

    def find(self, request: bytes) -> tuple[CachedHead, bytes] | None:
        """Return the parsed head and the body, if these bytes are one whole request with a cached head."""
        body_at = request.find(_END, 0, MAX_HEAD) + len(_END)
        head = self._heads.get(request[:body_at])
        if head is None or len(request) - body_at != head.body_bytes:
            return None
        return head, request[body_at:]

    def learn(self, request: bytes, head: CachedHead, fields: HeaderFields) -> None:
        """Cache the head of a request.

        A head with an id of its own (trace, request) is not cached, since it will not come again, nor one that its body
        does not simply follow: empty lines before it, or a chunked body.
        """
        body_at = request.find(_END, 0, MAX_HEAD) + len(_END)
        if body_at < len(_END) or len(request) - body_at != head.body_bytes:
            return
        if b"transfer-encoding" in fields or not NAMES_REQUEST.isdisjoint(fields):
            return
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[request[:body_at]] = head
