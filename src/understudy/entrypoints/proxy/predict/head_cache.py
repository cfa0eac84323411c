"""Head cache: a client on a kept connection sends the same bytes of a request's head again and again.

It keeps what the HTTP parser made of a head, by the head's bytes: a cache of the parser, and no second parser.
"""

from typing import NamedTuple

from understudy.entrypoints.proxy.messages.headers import NAMES_REQUEST, HeaderFields, RequestOptions

MAX_HEADS = 1_024
MAX_HEAD = 2_048
"""Bytes. Together they bound what callers can make a process keep: 2 MiB."""
REST_CALLS = 32 * MAX_HEADS
"""For so many calls nothing is cached after a full cache of heads that did not come again."""
_MIN_HITS = MAX_HEADS // 8
"""Of a full cache: a hit saves eight times what caching a head costs."""
_END = b"\r\n\r\n"


class CachedHead(NamedTuple):
    """A parsed head."""

    path: str
    model_name: str
    options: RequestOptions
    body_bytes: int


class HeadCache:
    """Heads of plain predict calls, by their bytes. When it is full, all are dropped and learnt anew.

    Where each call has a head of its own, as behind a sidecar that adds ids, it rests for most of the time.
    """

    def __init__(self) -> None:
        self._heads: dict[bytes, CachedHead] = {}
        self._hits = 0
        self._rest_calls = 0

    def is_resting(self) -> bool:
        """Whether this call's head is not to be cached; asked once a call whose head was not found."""
        if self._rest_calls == 0:
            return False
        self._rest_calls -= 1
        return True

    def find(self, request: bytes) -> tuple[CachedHead, bytes] | None:
        """Return the parsed head and the body, if these bytes are one whole request with a cached head."""
        if not self._heads:
            return None
        body_at = request.find(_END, 0, MAX_HEAD) + len(_END)
        head = self._heads.get(request[:body_at])
        if head is None or len(request) - body_at != head.body_bytes:
            return None
        self._hits += 1
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
            hits, self._hits = self._hits, 0
            if hits < _MIN_HITS:
                self._rest_calls = REST_CALLS
                return
        self._heads[request[:body_at]] = head
