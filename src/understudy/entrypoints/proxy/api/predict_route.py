"""The lane around FastAPI: predict calls go straight to their door, everything else to FastAPI.

FastAPI's own machinery costs more than the whole rest of a predict call (measured: 40 µs beside about 15), and these
routes need none of it. FastAPI still documents them, and answers them with the same door when asked directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from understudy.entrypoints.proxy.predict.handler import HttpCall, PredictDoor, Reply
from understudy.entrypoints.proxy.server.connection import WRITE_WHOLE, WriteWhole
from understudy.errors import BodyTooLarge, MalformedBody, RequestTimedOut
from understudy.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PREFIX = "/v1/models/"
_PLAIN = ":@!$&'()*+,;="
"""What a part of a path may hold as it is (RFC 3986, ``pchar``) beside letters, digits and ``-._~``."""


class PredictLane:
    """Routes ``POST /v1/models/{model}/predict`` and ``…/predict:batch`` to the door without a framework.

    Args:
        app: What answers every other request.
        door: Returns the door, which is there once the lifespan has begun.
        settings: The bounds of a body.
    """

    def __init__(self, app: App, door: Callable[[], PredictDoor], settings: Settings) -> None:
        self._app = app
        self._door = door
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if b"%" in scope["raw_path"]:
            scope = {**scope, "path": canonical_path(scope["raw_path"])}
        model_name, action = _target(scope["path"]) if scope["method"] == "POST" else ("", "")
        answer: Callable[[HttpCall, str], Awaitable[Reply]]
        if action == "predict":
            answer = self._door().predict
        elif action == "predict:batch":
            answer = self._door().predict_batch
        else:
            await self._app(scope, receive, send)
            return
        reply = await answer(http_call(scope, receive, self._settings), model_name)
        write_whole: WriteWhole | None = scope.get(WRITE_WHOLE)
        if write_whole is None or not write_whole(reply.status, _with_length(reply), reply.body):
            await send_reply(send, reply)


def http_call(scope: Scope, receive: Receive, settings: Settings) -> HttpCall:
    """Return a request as the door takes it."""
    read = partial(read_body, receive, settings.body_limit_bytes, settings.receive_seconds)
    return HttpCall(scope["path"], scope["headers"], read)


async def read_body(receive: Receive, limit_bytes: int, seconds: float) -> bytes:
    """Return the whole body.

    Raises:
        RequestTimedOut: It was not complete after ``seconds``.
        BodyTooLarge: More than ``limit_bytes`` have come.
        MalformedBody: The connection closed first; nobody will read the answer.
    """
    # The server gives at once what has come, which is nearly always all: a timer here is 4 µs a call for nothing.
    first = await receive()
    if first["type"] == "http.request" and not first.get("more_body"):
        body: bytes = first.get("body", b"")
        _check_size(len(body), limit_bytes)
        return body
    try:
        async with asyncio.timeout(seconds):
            return await _read_on(first, receive, limit_bytes)
    except TimeoutError:
        raise RequestTimedOut(f"the body was not complete after {seconds:g} s") from None


async def _read_on(message: MutableMapping[str, Any], receive: Receive, limit_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while message["type"] == "http.request":
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        _check_size(size, limit_bytes)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()
    raise MalformedBody(f"the connection closed after {size} bytes of the body")


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes")


async def send_reply(send: Send, reply: Reply) -> None:
    """Send an answer."""
    await send({"type": "http.response.start", "status": reply.status, "headers": _with_length(reply)})
    await send({"type": "http.response.body", "body": reply.body})


def _with_length(reply: Reply) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % len(reply.body)), *reply.headers]


def canonical_path(raw_path: bytes) -> str:
    """Return a path in which only what a name may hold is encoded, and always in the same way.

    Routes are found in this form, so that an encoded slash belongs to a name; each name is decoded afterwards.
    """
    parts = raw_path.decode("latin-1").split("/")
    return "/".join(quote(unquote(part), safe=_PLAIN) for part in parts)


def _target(path: str) -> tuple[str, str]:
    """Return the model and what is asked of it."""
    if not path.startswith(_PREFIX):
        return "", ""
    model_name, _, action = path[len(_PREFIX) :].partition("/")
    return unquote(model_name), action
