"""How a call over HTTP fails: what that says about the replica, and in words."""

from collections.abc import Mapping
from typing import Any

import orjson

from understudy.core.upstream.replicas import CallResult

MAX_SAID_BYTES = 800
"""Of a body that is a server's own words as it is: 200 characters of four bytes."""
MAX_READ_BYTES = 16_384
"""Of a body that is read as JSON, to find the words in it."""

_NO_CONNECTION = "no connection"
_RESULTS: Mapping[int, CallResult] = {
    # As gRPC maps them (doc/http-grpc-status-mapping.md): a balancer has no server, or the server is about to go.
    408: CallResult.UNAVAILABLE,
    502: CallResult.UNAVAILABLE,
    503: CallResult.UNAVAILABLE,
    504: CallResult.UNAVAILABLE,
    # Given at once and to every call: as refusals they would draw all calls to the replica that is least busy.
    401: CallResult.UNABLE,
    403: CallResult.UNABLE,
    404: CallResult.UNABLE,
    405: CallResult.UNABLE,
    407: CallResult.UNABLE,
    429: CallResult.UNABLE,
    501: CallResult.UNABLE,
}
"""What a status says about the replica; all others, but redirects, are refusals of the call."""


class HttpCallFailed(Exception):
    """A call over HTTP that has no answer which its caller can have."""

    def __init__(self, result: CallResult, what: str, *, why: str = "", status: int = 0, body: bytes = b"") -> None:
        super().__init__(what)
        self.result = result
        """What is held against the replica."""
        self.what = what
        """What it ended with, such as ``HTTP 503``."""
        self.why = why
        """What to look at."""
        self.status = status
        """The answer's status; 0 where there was none, or it was not the reason."""
        self.said = words_of(body)
        """The server's own words."""

    @property
    def is_unconnected(self) -> bool:
        """Whether there was no connection."""
        return self.what == _NO_CONNECTION

    @property
    def sent(self) -> str:
        """What the server did, where it is no matter of its health."""
        return f"refused the call with {self.what}" if self.status else f"sent {self.what}"


def failure_of_status(status: int, body: bytes) -> HttpCallFailed:
    """Return how a call failed whose answer's status is none of success."""
    if status // 100 == 3:  # noqa: PLR2004 - RFC 9110, section 15.4
        return HttpCallFailed(
            CallResult.UNABLE, f"HTTP {status}", why="a redirect, and none is followed", status=status
        )
    return HttpCallFailed(_RESULTS.get(status, CallResult.REFUSED), f"HTTP {status}", status=status, body=body)


def late() -> HttpCallFailed:
    """Return how a call failed whose time is over."""
    return HttpCallFailed(CallResult.LATE, "no answer in time")


def not_http(problem: str) -> HttpCallFailed:
    """Return how a call failed whose answer cannot be read as one of HTTP/1.1."""
    return HttpCallFailed(CallResult.UNAVAILABLE, "an answer that is not HTTP/1.1", why=problem)


def broken(why: str) -> HttpCallFailed:
    """Return how a call failed whose connection broke."""
    return HttpCallFailed(CallResult.UNAVAILABLE, "a broken connection", why=why)


def not_connected(why: str) -> HttpCallFailed:
    """Return how a call failed that found no connection."""
    return HttpCallFailed(CallResult.UNAVAILABLE, _NO_CONNECTION, why=why)


def crowded() -> HttpCallFailed:
    """Return how a call failed that has no room to wait for a connection."""
    return HttpCallFailed(CallResult.UNABLE, "all connections in use")


def not_taken_as_it_is(problem: str) -> HttpCallFailed:
    """Return how a call failed whose answer is whole, or would be, and is not read: too long, or compressed."""
    return HttpCallFailed(CallResult.REFUSED, problem)


def words_of(body: bytes) -> str:
    """Return what a server says of a call that it refused.

    FastAPI repeats the inputs, which may be a person's: of its list of mistakes only the places and messages are taken.
    """
    try:
        document = orjson.loads(body[:MAX_READ_BYTES])
    except orjson.JSONDecodeError:
        document = None
    told = (
        [document[name] for name in ("error", "detail", "message") if name in document]
        if type(document) is dict
        else []
    )
    found = next((one for one in told if isinstance(one, str | list)), None)
    if isinstance(found, list):
        return "; ".join(_mistake(one) for one in found[:10] if isinstance(one, dict))
    return found if found is not None else body[:MAX_SAID_BYTES].decode(errors="replace")


def _mistake(one: Mapping[str, Any]) -> str:
    place = one.get("loc")
    shown = ".".join(map(str, place)) if isinstance(place, list) else ""
    return f"{shown}: {one.get('msg', '')}"
