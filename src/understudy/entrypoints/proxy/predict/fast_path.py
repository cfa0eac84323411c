"""Fast path: a plain predict call goes from its connection to the handler without ASGI in between.

It answers what the predict route would, byte for byte but for ids and times; a test compares the two. It declines a
request that is unusual in any way, and the connection then hands that to ASGI.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import structlog

from understudy.core.value import Slotted
from understudy.entrypoints.proxy.messages.call_span import PREDICT_ROUTE, begin_span, end_span
from understudy.entrypoints.proxy.messages.headers import (
    RawHeaders,
    RequestOptions,
    header_lines,
    identify,
    read_headers,
)
from understudy.entrypoints.proxy.messages.problems import problem_body, problem_lines, status_of
from understudy.entrypoints.proxy.messages.reply import JSON
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES, PredictHandler, answer_body
from understudy.errors import HeaderInvalid, InternalFault, UnderstudyError
from understudy.ports.telemetry.tracing import Span, within
from understudy.serving.call import Outcome

_log = structlog.get_logger(__name__)

FAST_PATH = "understudy.fast_path"
"""Key of the :class:`FastPath` in the server's state, once the lifespan has begun."""
_TARGET = re.compile(rb"/v1/models/([\w.~-]+)/predict", re.ASCII)
"""Only model names that need no percent-decoding."""
_MAX_TARGET = 512
"""Bytes of a target that is cached: its length is the caller's choice."""
_JSON_LINE = header_lines([JSON])


class ResponseWriter(Protocol):
    """Writes one answer, now or later."""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write an answer, its headers as lines, without ``content-length``."""


class FastPath:
    """Takes whole requests, and answers by callback.

    Args:
        handler: The handler of predict calls.
        new_id: Makes an id of 32 hex digits.
        body_limit_bytes: A longer body is declined here, and refused through ASGI.
    """

    def __init__(self, handler: PredictHandler, new_id: Callable[[], str], body_limit_bytes: int) -> None:
        self.handler = handler
        self._new_id = new_id
        self._max_body_bytes = min(INLINE_BYTES, body_limit_bytes)

    def offer(self, target: bytes, headers: RawHeaders, body: bytes, writer: ResponseWriter) -> bool:
        """Answer a POST, or return ``False``: then nothing has happened, and ``writer`` is not used.

        Args:
            target: The request's target as it was sent.
            headers: Lower-case names and values.
            body: All of it.
            writer: Takes the answer.
        """
        model_name = model_of(target)
        if model_name is None or len(body) > self._max_body_bytes:
            return False
        fields = dict(headers)
        span = begin_span(self.handler.tracer, PREDICT_ROUTE, headers) if self.handler.tracer is not None else None
        request_id, identity_lines = identify(fields, self._new_id, span)
        call = _Call(self.handler, target.decode(), request_id, identity_lines, writer, span)
        self.handler.in_flight += 1
        try:
            options = read_headers(fields)
        except HeaderInvalid as problem:
            call.on_result(problem)
            return True
        call.predict(options, model_name, body)
        return True


class _Call(Slotted):
    """A call on the fast path: makes its answer, and gives that to its writer."""

    _handler: PredictHandler
    _path: str
    _request_id: str
    _identity_lines: bytes
    _writer: ResponseWriter
    _span: Span | None

    def predict(self, options: RequestOptions, model_name: str, body: bytes) -> None:
        """Give the call to the handler."""
        if self._span is None:
            self._handler.predict_by_callback(options, model_name, body, self.on_result)
        else:
            with within(self._span):
                self._handler.predict_by_callback(options, model_name, body, self.on_result)

    def on_result(self, found: Outcome | Exception) -> None:
        """Answer with the call's outcome; a defect is answered E500."""
        self._handler.in_flight -= 1
        make_answer = self._make_answer if self._span is None else self._traced_answer
        try:
            answer = make_answer(found)
        except Exception as defect:  # noqa: BLE001 - the last resort, as the request-id middleware is on ASGI
            answer = make_answer(defect)
        self._writer.answer(*answer)
        if self._span is not None:
            end_span(self._span, answer[0])

    def _traced_answer(self, found: Outcome | Exception) -> tuple[int, bytes, bytes]:
        with within(self._span):  # the result may come in another call's turn of the event loop
            return self._make_answer(found)

    def _make_answer(self, found: Outcome | Exception) -> tuple[int, bytes, bytes]:
        """Return status, header lines and body, as the handler's own replies have them."""
        handler = self._handler
        if type(found) is Outcome:
            error = found.served.error
            lines = handler.receipt_lines(found) + self._identity_lines
            if error is None:
                return 200, _JSON_LINE + lines, answer_body(found)
            return status_of(error), problem_lines(error) + lines, problem_body(error, self._path)
        if isinstance(found, UnderstudyError):
            reply = handler.refuse(found, self._path)
        else:
            _log.error("request.failed", request_id=self._request_id, path=self._path, exc_info=found)
            reply = handler.refuse(InternalFault(), self._path)
        return reply.status, header_lines(reply.headers) + self._identity_lines, reply.body


def model_of(target: bytes) -> str | None:
    """Return the model of a predict call's target; ``None`` for any other target."""
    return _model_of(target) if len(target) <= _MAX_TARGET else None


@lru_cache(maxsize=4_096)
def _model_of(target: bytes) -> str | None:
    match = _TARGET.fullmatch(target)
    return match.group(1).decode() if match is not None else None
