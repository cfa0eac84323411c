"""What both clients have in common: where the proxy is, the key, the time of a call, and its request's headers."""

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import SplitResult, urlsplit

from understudy import __version__
from understudy.client.problems import MAX_ANSWER_BYTES, AnswerTooLong, ProxyAway

D = TypeVar("D")
T = TypeVar("T")
DEFAULT_SECONDS = 10.0
_MAX_DEADLINE_MS = 3_600_000
_WAY_BACK_SHARE, _MAX_WAY_BACK_SECONDS = 0.05, 0.1
"""So much of the time is left to the answer's way back: then the proxy says what was late, and not the client."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_URL, _KEY = "UNDERSTUDY_PROXY_URL", "UNDERSTUDY_CREDENTIAL"


class Connection(NamedTuple):
    """The proxy that a client calls."""

    url: str
    """``http://host:port`` or ``https://host:port``."""
    key: str | None
    """``<id>.<secret>``; ``None`` sends none."""

    @classmethod
    def of(cls, url: str | None, key: str | None) -> Self:
        """Return the connection to ``url`` with ``key``; what is ``None`` is taken from the environment.

        Raises:
            ValueError: There is no URL, or it is none of HTTP, or the key cannot be one; neither is repeated.
        """
        found = (url or os.environ.get(_URL, "")).rstrip("/")
        if not found:
            raise ValueError(f"expected the proxy's URL, as an argument or in {_URL}")
        parts = urlsplit(found)
        has_more = "@" in parts.netloc or parts.query or parts.fragment
        if parts.scheme not in ("http", "https") or not parts.hostname or has_more or not _is_port_of(parts):
            raise ValueError("expected a URL such as http://127.0.0.1:8080, without a login and parameters")
        shown = key or os.environ.get(_KEY) or None
        if shown is not None and not is_key(shown):
            raise ValueError("the key has characters that no header holds: expected <id>.<secret>")
        return cls(found, shown)

    def read(self, read: Callable[[D], T], said: D) -> T:
        """Return what an answer says; one of another form names the server that sent it."""
        try:
            return read(said)
        except ProxyAway as problem:
            problem.called = self.url
            raise

    def options(self) -> dict[str, Any]:
        """Return what the library's client is made with."""
        # At INFO the library logs each call on standard error.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        headers = {"user-agent": f"understudy-client/{__version__}"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        # A call to this machine never uses the HTTP proxy of HTTP_PROXY.
        return {"headers": headers, "trust_env": urlsplit(self.url).hostname not in _LOOPBACK}


def is_key(text: str) -> bool:
    """Whether a header holds this text as it is: else the library's own error would repeat it."""
    return text.isascii() and text.isprintable() and " " not in text


def is_plain(url: str) -> bool:
    """Whether others on the way can read what is sent to this URL."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK


def _is_port_of(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


def request_headers(remaining_seconds: float, *, has_body: bool) -> dict[str, str]:
    """Return the headers of one attempt: the proxy is told how much time is left, and works no longer than that."""
    its_own = remaining_seconds - min(remaining_seconds * _WAY_BACK_SHARE, _MAX_WAY_BACK_SECONDS)
    milliseconds = min(max(int(its_own * 1000), 1), _MAX_DEADLINE_MS)
    headers = {"x-request-timeout-ms": str(milliseconds)}
    return {**headers, "content-type": "application/json"} if has_body else headers


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return an answer's headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


def with_part(body: bytearray, part: bytes) -> bytearray:
    """Return a body with its next part.

    Raises:
        AnswerTooLong: It is longer than an answer of a proxy can be.
    """
    body += part
    if len(body) > MAX_ANSWER_BYTES:
        raise AnswerTooLong(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes", is_passing=False)
    return body
