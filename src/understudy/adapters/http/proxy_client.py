"""A client of a running proxy's HTTP API, which raises its problems as errors."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2
import orjson

from understudy.errors import RequestError, UnderstudyError, Violation, leaf_errors

MAX_ANSWER_BYTES = 8 * 1_048_576
_OK = 200
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_ERRORS: Mapping[str, type[UnderstudyError]] = {error.code: error for error in leaf_errors()}


class ProxyAway(Exception):
    """No server answers at the address, or it is no proxy; the text says which."""


class ProxyAnswer(NamedTuple):
    """A good answer: its JSON object, and its headers with names in lower case."""

    document: Mapping[str, Any]
    headers: Mapping[str, str]


class HttpProxy:
    """Calls one proxy; use it as an asynchronous context manager.

    Args:
        base_url: ``http://host:port`` or ``https://host:port``.
        credential: The value after ``Authorization: Bearer``; ``None`` sends no key.
        timeout_seconds: Longest time of one call, connecting and reading included.
    """

    def __init__(self, base_url: str, credential: str | None, *, timeout_seconds: float) -> None:
        # At INFO the client's library logs each call on standard error.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
        self._base_url = base_url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        # A call to this machine never uses the HTTP proxy of HTTP_PROXY.
        is_near = urlsplit(base_url).hostname in _LOOPBACK
        self._client = httpx2.AsyncClient(headers=headers, timeout=timeout_seconds, trust_env=not is_near)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> ProxyAnswer:
        """Call with GET.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ProxyAway: No server answers, or it is no proxy.
        """
        return await self._call("GET", path, params=dict(parameters or {}))

    async def post(self, path: str, document: Any, headers: Mapping[str, str] | None = None) -> ProxyAnswer:
        """Call with POST and a JSON body.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ProxyAway: No server answers, or it is no proxy.
        """
        content = orjson.dumps(document)
        return await self._call(
            "POST", path, content=content, headers={"content-type": "application/json", **(headers or {})}
        )

    async def _call(self, method: str, path: str, **request: Any) -> ProxyAnswer:
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream(method, f"{self._base_url}{path}", **request) as response,
            ):
                return _understood(response, await _body(response))
        except TimeoutError:
            raise ProxyAway(f"no answer within {self._timeout_seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as problem:
            raise ProxyAway(str(problem) or type(problem).__name__) from None


def error_of(document: Mapping[str, Any]) -> UnderstudyError | None:
    """Return the error of a problem (RFC 9457); ``None`` when its code is unknown."""
    kind = _ERRORS.get(str(document.get("code")))
    if kind is None:
        return None
    # The constructors of leaves need more than a problem has, so only the texts are set.
    error = kind.__new__(kind)
    UnderstudyError.__init__(error, str(document.get("detail") or ""), hint=str(document.get("next") or "") or None)
    if isinstance(error, RequestError):
        error.violations = tuple(
            Violation(str(place.get("pointer", "")), str(place.get("detail", "")))
            for place in document.get("errors") or ()
            if isinstance(place, Mapping)
        )
    return error


def _understood(response: httpx2.Response, body: bytes) -> ProxyAnswer:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        kind = response.headers.get("content-type", "no content type")
        raise ProxyAway(f"the server that answers is no Understudy proxy: status {response.status_code}, {kind}")
    if response.status_code == _OK:
        return ProxyAnswer(document, {name.lower(): value for name, value in response.headers.items()})
    problem = error_of(document)
    if problem is None:
        raise ProxyAway(f"the server that answers is no proxy of this version: status {response.status_code}")
    raise problem


async def _body(response: httpx2.Response) -> bytes:
    found = bytearray()
    async for part in response.aiter_bytes():
        found += part
        if len(found) > MAX_ANSWER_BYTES:
            raise ProxyAway(f"the answer is longer than {MAX_ANSWER_BYTES:,} bytes")
    return bytes(found)
