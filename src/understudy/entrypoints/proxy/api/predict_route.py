"""The predict route, around FastAPI: predict calls go to their handler at once, every other request to FastAPI.

FastAPI's routing and validation cost more than the whole rest of a predict call (measured: 40 µs beside about 15), and
these routes need none of it. FastAPI still documents them, and answers them with the same handler when it is called
directly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote, unquote

from understudy.entrypoints.proxy.messages.headers import content_length
from understudy.entrypoints.proxy.messages.reply import HttpCall, Reply
from understudy.entrypoints.proxy.overload.body_budget import BODY_BUDGET, SMALL_BYTES, HeldBody, no_room
from understudy.entrypoints.proxy.overload.overload import counted_address
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.server.response_writer import WRITE_WHOLE, WriteWhole
from understudy.errors import BodyTooLarge, MalformedBody, Overloaded, RequestTimedOut, UnderstudyError
from understudy.settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LINGER_SECONDS = 0.5
"""How long a body that found no room may go on before the answer, which ends the connection."""
_NO_SCOPE: Scope = {"headers": ()}
_PREFIX = "/v1/models/"
_PLAIN = ":@!$&'()*+,;="
"""What a part of a path may hold as it is (RFC 3986, ``pchar``) beside letters, digits and ``-._~``."""


class PredictRoute:
    """Routes ``POST /v1/models/{model}/predict`` and ``…/predict:batch`` to the handler without a framework.

    Args:
        app: Answers every other request.
        handler: Returns the predict handler, which exists once the lifespan has begun.
        settings: The limits of a body's size and time.
    """

    def __init__(self, app: App, handler: Callable[[], PredictHandler], settings: Settings) -> None:
        self._app = app
        self._handler = handler
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
            answer = self._handler().predict
        elif action == "predict:batch":
            answer = self._handler().predict_batch
        else:
            await self._app(scope, receive, send)
            return
        await give(scope, send, await answer(http_call(scope, receive, self._settings), model_name))


def http_call(scope: Scope, receive: Receive, settings: Settings) -> HttpCall:
    """Return a request in the form that the predict handler takes."""
    read = partial(read_body, receive, settings.body_limit_bytes, settings.receive_seconds, scope)
    return HttpCall(scope["path"], scope["headers"], read, partial(_hold, scope))


async def read_body(receive: Receive, limit_bytes: int, seconds: float, scope: Mapping[str, Any] = _NO_SCOPE) -> bytes:
    """Return the whole body.

    One that is long, or comes in pieces, is counted in the process's body budget until the task ends that reads it: the
    request's own.

    Args:
        receive: Of ASGI.
        limit_bytes: Of the body.
        seconds: Longest time for what does not come at once.
        scope: The request's, with its headers, its caller's address and the server's state.

    Raises:
        RequestTimedOut: It was not complete after ``seconds``: a stalled caller, or a slow-loris attack.
        BodyTooLarge: The headers announce more than ``limit_bytes`` (then none of it is awaited), or more arrived.
        Overloaded: The body budget has no room for it, or had none for another body while this one was late.
        MalformedBody: The caller closed the connection first, and will not read the answer.
    """
    headers = scope["headers"]
    for name, value in headers:
        if name == b"content-length" and (content_length(value) or 0) > limit_bytes:
            raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes")
    # The server returns what has arrived, nearly always the whole body: a timer for that would cost 4 µs a call.
    first = await receive()
    if first["type"] == "http.request" and not first.get("more_body"):
        body: bytes = first.get("body", b"")
        _check_size(len(body), limit_bytes)
        _hold(scope, len(body))
        return body
    held = _held_body(scope)
    try:
        async with asyncio.timeout(seconds) as timer:
            held.begin(partial(_expire, timer))
            return await _read_on(first, receive, limit_bytes, held)
    except TimeoutError:
        held.release()
        if not held.is_evicted:
            raise RequestTimedOut(f"the body was not complete after {seconds:g} s") from None
        await _drop_body(receive, LINGER_SECONDS)  # as below
        raise no_room("bodies") from None
    except UnderstudyError:
        held.release()  # now: the answer may have to wait for its caller
        raise


def _expire(timer: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # its time is over already
        timer.reschedule(0)


async def _drop_body(receive: Receive, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while (await receive()).get("more_body"):
                pass


def _held_body(scope: Mapping[str, Any]) -> HeldBody:
    """Return an empty body, which is counted until the request's task ends."""
    budget = scope.get("state", {}).get(BODY_BUDGET)
    task = asyncio.current_task()
    if budget is None or task is None:
        return HeldBody(None, "")
    held = HeldBody(budget, counted_address(scope.get("client")))
    task.add_done_callback(lambda _: held.release())
    return held


def _hold(scope: Mapping[str, Any], size: int) -> None:
    """Count bytes that a request holds beside its body, as a body that came whole."""
    if size > SMALL_BYTES:
        _held_body(scope).count(size)


async def _read_on(message: MutableMapping[str, Any], receive: Receive, limit_bytes: int, held: HeldBody) -> bytes:
    while message["type"] == "http.request":
        piece, is_last = message.get("body", b""), not message.get("more_body")
        _check_size(len(held.data) + len(piece), limit_bytes)
        try:
            held.append(piece)
        except Overloaded:
            if not is_last:
                await _drop_body(receive, LINGER_SECONDS)  # else the caller might lose the answer
            raise
        if is_last:
            return held.whole()
        message = await receive()
    raise MalformedBody(f"the connection closed after {len(held.data)} bytes of the body")


def _check_size(size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise BodyTooLarge(f"the body is longer than {limit_bytes} bytes")


async def give(scope: Scope, send: Send, reply: Reply) -> None:
    """Send an answer whose headers are known to be valid: in one write where that is possible."""
    write_whole: WriteWhole | None = scope.get(WRITE_WHOLE)
    if write_whole is None or not write_whole(reply.status, _with_length(reply), reply.body):
        await send_reply(send, reply)


async def send_reply(send: Send, reply: Reply) -> None:
    """Send an answer."""
    await send({"type": "http.response.start", "status": reply.status, "headers": _with_length(reply)})
    await send({"type": "http.response.body", "body": reply.body})


def _with_length(reply: Reply) -> list[tuple[bytes, bytes]]:
    return [(b"content-length", b"%d" % len(reply.body)), *reply.headers]


def canonical_path(raw_path: bytes) -> str:
    """Return a path in canonical percent-encoding: only what a name may not hold as it is stays encoded.

    Routes match this form, so that an encoded slash belongs to a name; each name is decoded afterwards.
    """
    parts = raw_path.decode("latin-1").split("/")
    return "/".join(quote(unquote(part), safe=_PLAIN) for part in parts)


def _target(path: str) -> tuple[str, str]:
    """Return the model and the action."""
    if not path.startswith(_PREFIX):
        return "", ""
    model_name, _, action = path[len(_PREFIX) :].partition("/")
    return unquote(model_name), action
