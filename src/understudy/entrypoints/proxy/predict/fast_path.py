"""Fast path: a plain predict call goes from its connection to the handler without ASGI in between.

What a turn of the event loop brings goes to the handler together, at the end of the turn. It answers what the predict
route would, byte for byte but for ids and times; a test compares the two. It declines a request that is unusual in any
way, and the connection then hands that to ASGI. Calls in other protocols are given to :class:`DialectCalls`.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import structlog

from understudy.entrypoints.proxy.messages.answers import answer_of, identify, identity_lines
from understudy.entrypoints.proxy.messages.call_span import PREDICT_ROUTE, begin_span, end_span
from understudy.entrypoints.proxy.messages.headers import HeaderFields, RawHeaders, header_lines
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES, PredictHandler, WholeCall
from understudy.errors import InternalFault, UnderstudyError
from understudy.ports.telemetry.tracing import within
from understudy.serving.call import UNREAD, Call
from understudy.serving.turn_group import TurnGroup

_log = structlog.get_logger(__name__)

FAST_PATH = "understudy.fast_path"
"""Key of the :class:`FastPath` in the server's state, once the lifespan has begun."""
_TARGET = re.compile(rb"/v1/models/([\w.~-]+)([/:]predict)|/v2/models/([\w.~-]+)(/infer)", re.ASCII)
"""Only model names that need no percent-decoding."""
_OWN_VERB = "/predict"
DIALECT_VERBS = (":predict", "/infer")
"""The ends of the paths of other protocols: KServe V1's and TensorFlow Serving's, and the Open Inference Protocol's."""
_MAX_TARGET = 512
"""Bytes of a target that is cached: its length is the caller's choice."""


class ResponseWriter(Protocol):
    """Writes one answer, now or later."""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write an answer, its headers as lines, without ``content-length``."""


class FastTarget(NamedTuple):
    """A path whose calls may take the fast path."""

    model_name: str
    verb: str
    """How it ends."""
    path: str


class DialectCalls(Protocol):
    """Takes whole calls in other protocols."""

    def offer(self, target: FastTarget, fields: HeaderFields, body: bytes, writer: ResponseWriter) -> bool:
        """Answer a call, or return ``False``: then nothing has happened, and ``writer`` is not used.

        Args:
            target: Its verb is one of :data:`DIALECT_VERBS`.
            fields: The request's headers.
            body: All of it.
            writer: Takes the answer.
        """


class FastPath:
    """Takes whole requests, and answers by callback.

    Args:
        handler: The handler of predict calls.
        new_id: Makes an id of 32 hex digits.
        body_limit_bytes: A longer body is declined here, and refused through ASGI.
        answers_pages: Whether calls of browsers' pages are taken; else ASGI adds what these may read (CORS).
        dialects: Takes calls in other protocols; ``None``: all are declined.
    """

    def __init__(
        self,
        handler: PredictHandler,
        new_id: Callable[[], str],
        body_limit_bytes: int,
        *,
        answers_pages: bool = True,
        dialects: DialectCalls | None = None,
    ) -> None:
        self.handler = handler
        self.new_id = new_id
        self._max_body_bytes = min(INLINE_BYTES, body_limit_bytes)
        self._answers_pages = answers_pages
        self._dialects = dialects
        self._turn = TurnGroup[WholeCall](handler.begin)

    def offer(
        self, target: bytes, headers: RawHeaders | dict[bytes, bytes], body: bytes, writer: ResponseWriter
    ) -> bool:
        """Answer a POST, or return ``False``: then nothing has happened, and ``writer`` is not used.

        Args:
            target: The request's target as it was sent.
            headers: Lower-case names and values; as a mapping where no name came twice.
            body: All of it.
            writer: Takes the answer.
        """
        found = _target_of(target) if len(target) <= _MAX_TARGET else None
        if found is None or len(body) > self._max_body_bytes:
            return False
        handler = self.handler
        fields, headers = (headers, headers.items()) if isinstance(headers, dict) else (dict(headers), headers)
        if not self._answers_pages and b"origin" in fields:
            return False
        if found.verb != _OWN_VERB:
            return self._dialects is not None and self._dialects.offer(found, fields, body, writer)
        span = begin_span(handler.tracer, PREDICT_ROUTE, headers) if handler.tracer is not None else None
        self._turn.add(_Call(found.model_name, UNREAD, None, None, span, fields, body, target, self, writer))
        handler.in_flight += 1
        return True


class _Call(WholeCall):
    """A call on the fast path: makes its answer, and gives that to its writer."""

    _target: bytes
    _path: FastPath
    _writer: ResponseWriter

    def on_result(self, found: Call | Exception) -> None:
        """Answer with the call as it ended; a defect is answered E500."""
        path = self._path
        path.handler.in_flight -= 1
        try:
            if self.span is None and isinstance(found, Call) and found.error is None:
                lines, body = answer_of(found, name_version=path.handler.version_headers)
                answer = 200, lines + identity_lines(self.fields, path.new_id), body
            else:
                answer = self._unusual_answer(found)
        except Exception as defect:  # noqa: BLE001 - the last resort, as the request-id middleware is on ASGI
            answer = self._unusual_answer(defect)
        self._writer.answer(*answer)
        if self.span is not None:
            end_span(self.span, answer[0])

    def _unusual_answer(self, found: Call | Exception) -> tuple[int, bytes, bytes]:
        """Return status, header lines and body, as the handler's replies have them, of an error or a traced call."""
        handler, path = self._path.handler, self._target.decode()
        with within(self.span):  # the result may come in another call's turn of the event loop
            request_id, identity = identify(self.fields, self._path.new_id, self.span)
            if isinstance(found, Call):
                status, lines, body = handler.answer(found, path)
                return status, lines + identity, body
            if isinstance(found, UnderstudyError):
                reply = handler.refuse(handler.access.explained(found, self.fields, self.model_name), path)
            else:
                _log.error("request.failed", request_id=request_id, path=path, exc_info=found)
                reply = handler.refuse(InternalFault(), path)
            return reply.status, header_lines(reply.headers) + identity, reply.body


def model_of(target: bytes) -> str | None:
    """Return the model of a target that may take the fast path; ``None`` for any other target."""
    found = _target_of(target) if len(target) <= _MAX_TARGET else None
    return None if found is None else found.model_name


@lru_cache(maxsize=4_096)
def _target_of(target: bytes) -> FastTarget | None:
    match = _TARGET.fullmatch(target)
    if match is None:
        return None
    model_name, verb = (one.decode() for one in match.groups() if one is not None)
    return FastTarget(model_name, verb, target.decode())
