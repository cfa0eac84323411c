"""The ASGI application around FastAPI: predict calls go straight to their door, everything else to FastAPI.

FastAPI's own machinery costs more than the whole rest of a predict call (measured: 40 µs beside about 15), and these
routes need none of it. FastAPI still documents them, and answers them with the same door when asked directly.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

import structlog

from understudy.entrypoints.proxy.door import PredictDoor, Reply
from understudy.errors import BodyTooLarge, InternalFault

_log = structlog.get_logger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_PREFIX = "/v1/models/"


class ClientGone(Exception):
    """The caller closed the connection before its body was complete."""


class PredictLane:
    """Routes ``POST /v1/models/{model}/predict`` and ``…/predict:batch`` to the door without a framework.

    Args:
        app: What answers every other request.
        door: Returns the door once the lifespan opened it.
        body_limit_bytes: Longest body that is read.
    """

    def __init__(self, app: App, door: Callable[[], PredictDoor | None], body_limit_bytes: int) -> None:
        self._app = app
        self._door = door
        self._body_limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        door = self._door()
        if scope["type"] != "http" or scope["method"] != "POST" or door is None:
            await self._app(scope, receive, send)
            return
        model_name, action = _target(scope)
        if action not in ("predict", "predict:batch"):
            await self._app(scope, receive, send)
            return
        try:
            body = await read_body(receive, self._body_limit_bytes)
        except ClientGone:
            return
        except BodyTooLarge as problem:
            await send_reply(send, door.refuse(problem, scope["path"]))
            return
        answer = door.predict if action == "predict" else door.predict_batch
        try:
            reply = await answer(model_name, scope["headers"], body, scope["path"])
        except Exception:  # noqa: BLE001 - the last resort: a problem without internals for the caller, the rest to the log
            _log.exception("predict.failed")
            reply = door.refuse(InternalFault(), scope["path"])
        await send_reply(send, reply)


async def read_body(receive: Receive, limit_bytes: int) -> bytes:
    """Return the whole body.

    Raises:
        BodyTooLarge: As soon as more than ``limit_bytes`` have come.
        ClientGone: The connection closed first.
    """
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        body: bytes = message.get("body", b"")
        if len(body) > limit_bytes:
            raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes")
        return body
    chunks: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes")
        chunks.append(chunk)
        if not message.get("more_body"):
            return b"".join(chunks)
        message = await receive()


async def send_reply(send: Send, reply: Reply) -> None:
    """Send an answer."""
    headers = [(b"content-length", b"%d" % len(reply.body)), *reply.headers]
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def _target(scope: Scope) -> tuple[str, str]:
    """Return the model and what is asked of it; split before decoding, so that a name may hold an encoded slash."""
    raw: bytes = scope.get("raw_path") or b""
    path: str = raw.partition(b"?")[0].decode("ascii", "replace") if b"%" in raw else scope["path"]
    if not path.startswith(_PREFIX):
        return "", ""
    model_name, _, action = path[len(_PREFIX) :].partition("/")
    return unquote(model_name), action
