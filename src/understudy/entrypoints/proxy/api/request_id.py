"""Request-id middleware, outermost: each answer carries its request's id, and each defect is logged under it."""

from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

import structlog

from understudy.entrypoints.proxy.api.dialect_routes import is_dialects
from understudy.entrypoints.proxy.api.lingering_close import lingering
from understudy.entrypoints.proxy.api.predict_route import App, Receive, Scope, Send, canonical_path, send_reply
from understudy.entrypoints.proxy.dialects.refusals import refusal
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.call_span import begin_span, end_span, route_of
from understudy.entrypoints.proxy.messages.headers import headers_of_lines
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM
from understudy.entrypoints.proxy.server.response_writer import IS_INCOMPLETE, IS_LOST, WRITE_WHOLE, WriteWhole
from understudy.errors import InternalFault, UnderstudyError
from understudy.ports.telemetry.tracing import Span, within

_log = structlog.get_logger(__name__)


class RequestIdMiddleware:
    """Adds ``x-request-id`` and ``traceresponse`` to each answer, answers 500 for a defect, and traces calls.

    A request whose head was refused is answered here: no route sees it.

    Args:
        app: The application.
        handler: Returns what builds problem answers; it exists once the lifespan has begun.
        new_id: Makes an id of 32 hex digits.
    """

    def __init__(self, app: App, handler: Callable[[], PredictHandler], new_id: Callable[[], str]) -> None:
        self._app = app
        self._handler = handler
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        tracer = self._handler().tracer
        if tracer is None:
            await self._answer(scope, receive, send, None)
            return
        route = route_of(scope["raw_path"]) if scope["method"] == "POST" else None
        if route is None:
            with within(None):  # the connection's answer before this one, which began this task, may be a traced call's
                await self._answer(scope, receive, send, None)
            return
        await self._answer_traced(scope, receive, send, begin_span(tracer, route, scope["headers"]))

    async def _answer_traced(self, scope: Scope, receive: Receive, send: Send, span: Span) -> None:
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR

        def send_watched(message: Scope) -> Awaitable[None]:
            nonlocal status
            status = message.get("status", status)
            return send(message)

        if WRITE_WHOLE in scope:
            write_whole = scope[WRITE_WHOLE]

            def write_watched(found: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
                nonlocal status
                status = found
                return bool(write_whole(found, headers, body))

            scope[WRITE_WHOLE] = write_watched
        try:
            with within(span):
                await self._answer(scope, receive, send_watched, span)
        finally:
            end_span(span, status)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, span: Span | None) -> None:
        request_id, lines = identify(dict(scope["headers"]), self._new_id, span)
        identity = headers_of_lines(lines)
        started = False
        if IS_INCOMPLETE in scope:
            send = lingering(send, receive, scope[IS_INCOMPLETE])

        def send_identified(message: Scope) -> Awaitable[None]:
            # Not a coroutine: it would cost each message of each answer one more.
            nonlocal started
            if not started:
                started = True
                message["headers"] = [*message["headers"], *identity]
            return send(message)

        if WRITE_WHOLE in scope:
            scope[WRITE_WHOLE] = _identified(scope[WRITE_WHOLE], identity)
        try:
            if HEAD_PROBLEM in scope:
                await send_reply(send_identified, self._refusal(scope[HEAD_PROBLEM], scope))
            else:
                await self._app(scope, receive, send_identified)
        except Exception as defect:  # noqa: BLE001 - the last resort: the log gets the cause, the caller no internals
            if isinstance(defect, RuntimeError) and IS_LOST in scope and scope[IS_LOST]():
                return  # uvloop raises that when a connection is written to which was aborted: its caller reads nothing
            _log.exception("request.failed", request_id=request_id, path=scope["path"])
            if not started:
                await send_reply(send_identified, self._refusal(InternalFault(), scope))
        finally:
            scope.pop(IS_LOST, None)
            scope.pop(IS_INCOMPLETE, None)
            scope.pop(WRITE_WHOLE, None)  # both refer to the scope: a reference cycle, left to the garbage collector

    def _refusal(self, problem: UnderstudyError, scope: Scope) -> Reply:
        """Return what such a request is answered with, in the form of its path's protocol."""
        handler, path = self._handler(), scope["path"]
        if not is_dialects(scope["method"], canonical_path(scope["raw_path"])):
            return handler.refuse(problem, path)
        handler.count_refusal(problem)
        return refusal(problem, path)


def _identified(write_whole: WriteWhole, identity: list[tuple[bytes, bytes]]) -> WriteWhole:
    def write(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        return write_whole(status, (*headers, *identity), body)

    return write
