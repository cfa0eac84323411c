"""What the command line asks a running proxy, with the headers of each answer; callers have ``understudy.client``."""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

import httpx2
import orjson

from understudy.client.connection import Connection, lower_names, with_part
from understudy.client.problems import Answer, ProxyAway, understood


class HttpProxy:
    """Calls one proxy, each call once; use it as an asynchronous context manager.

    Args:
        base_url: ``http://host:port`` or ``https://host:port``.
        credential: The value after ``Authorization: Bearer``; ``None`` sends no key.
        timeout_seconds: Longest time of one call, connecting and reading included.
    """

    def __init__(self, base_url: str, credential: str | None, *, timeout_seconds: float) -> None:
        self._connection = Connection(base_url.rstrip("/"), credential)
        self._timeout_seconds = timeout_seconds
        self._client = httpx2.AsyncClient(timeout=timeout_seconds, **self._connection.options())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Answer:
        """Call with GET.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ProxyAway: No server answers, or it is no proxy.
        """
        return await self._call("GET", path, params=dict(parameters or {}))

    async def post(self, path: str, document: Any, headers: Mapping[str, str] | None = None) -> Answer:
        """Call with POST and a JSON body.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ProxyAway: No server answers, or it is no proxy.
        """
        return await self.send("POST", path, document, headers=headers)

    async def send(
        self,
        method: str,
        path: str,
        document: Any = None,
        *,
        parameters: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Call with a method, and with a JSON body where there is a document.

        Raises:
            UnderstudyError: The leaf that the proxy's problem names.
            ProxyAway: No server answers, or it is no proxy.
        """
        own = {} if document is None else {"content-type": "application/json"}
        content = None if document is None else orjson.dumps(document, option=orjson.OPT_UTC_Z)
        return await self._call(
            method, path, content=content, params=dict(parameters or {}), headers={**own, **(headers or {})}
        )

    async def _call(self, method: str, path: str, **request: Any) -> Answer:
        body = bytearray()
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                self._client.stream(method, f"{self._connection.url}{path}", **request) as response,
            ):
                async for part in response.aiter_bytes():
                    body = with_part(body, part)
                return understood(response.status_code, lower_names(response.headers), bytes(body))
        except TimeoutError:
            raise ProxyAway(f"no answer within {self._timeout_seconds:g} s") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, OSError) as problem:
            raise ProxyAway(str(problem) or type(problem).__name__) from None
