"""Heads of requests that were met before: a kept connection sends the same bytes again and again.

What a head means is the parser's to say. It says the same of the same bytes, so that is asked once: what is kept here
is an answer of the parser, and no second reading of HTTP.
"""

from typing import NamedTuple

from understudy.entrypoints.proxy.messages.headers import NAMES_ITSELF, RawHeaders, RequestOptions

MAX_HEADS = 1_024
MAX_HEAD = 2_048
"""Bytes. Both are bounds of what callers can make us remember: 2 MiB."""
_END = b"\r\n\r\n"


class CachedHead(NamedTuple):
    """What a head means."""

    path: str
    model_name: str
    asked: RequestOptions
    body_bytes: int


class HeadCache:
    """Heads of plain predict calls, by their bytes. When there are too many, all are forgotten and learnt anew."""

    def __init__(self) -> None:
        self._heads: dict[bytes, CachedHead] = {}

    def find(self, request: bytes) -> tuple[CachedHead, bytes] | None:
        """Return what the head means and the body, when these bytes are one whole request with a known head."""
        body_at = request.find(_END, 0, MAX_HEAD) + len(_END)
        head = self._heads.get(request[:body_at])
        if head is None or len(request) - body_at != head.body_bytes:
            return None
        return head, request[body_at:]

    def learn(self, request: bytes, head: CachedHead, headers: RawHeaders) -> None:
        """Remember the head of a request.

        Not so when it names itself, since it will not be met again, nor when head and body are not simply one behind
        the other: empty lines before it, or a body in chunks.
        """
        body_at = request.find(_END, 0, MAX_HEAD) + len(_END)
        if body_at < len(_END) or len(request) - body_at != head.body_bytes:
            return
        if any(name in NAMES_ITSELF or name == b"transfer-encoding" for name, _ in headers):
            return
        if len(self._heads) >= MAX_HEADS:
            self._heads.clear()
        self._heads[request[:body_at]] = head
