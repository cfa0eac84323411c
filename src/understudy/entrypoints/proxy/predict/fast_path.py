"""The express lane: a plain predict call goes from its connection to the door without ASGI in between.

It answers what the predict lane would, byte for byte but for ids and times; a test compares the two. Whatever is
unusual about a request it declines, and the request then takes the ordinary way.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import structlog

from understudy.entrypoints.proxy.messages.call_span import PREDICT_ROUTE, begin_span, end_span
from understudy.entrypoints.proxy.messages.headers import RawHeaders, RequestOptions, identify, lines_of, read_headers
from understudy.entrypoints.proxy.messages.problems import problem_body, problem_lines, status_of
from understudy.entrypoints.proxy.messages.reply import JSON
from understudy.entrypoints.proxy.predict.handler import INLINE_BYTES, PredictHandler, answer_body
from understudy.entrypoints.proxy.predict.head_cache import CachedHead, HeadCache
from understudy.errors import HeaderInvalid, InternalFault, UnderstudyError
from understudy.ports.tracing import Span, within
from understudy.serving.call import Outcome

_log = structlog.get_logger(__name__)

FAST_PATH = "understudy.fast_path"
"""Where the server's state has the lane, once the lifespan has begun."""
_TARGET = re.compile(rb"/v1/models/([\w.~-]+)/predict", re.ASCII)
"""Only names that are the same however a path is read."""
_MAX_TARGET = 512
"""Bytes of a target that is remembered: its length is the caller's choice."""
_JSON_LINE = lines_of([JSON])


class ResponseWriter(Protocol):
    """Where an answer is written, now or later, once."""

    def answer(self, status: int, lines: bytes, body: bytes) -> None:
        """Write an answer, its headers as lines; its length is not among them."""
        ...


class FastPath:
    """Takes whole requests, and answers by callback.

    Args:
        door: The predict door.
        new_id: Makes an id of 32 hex digits.
        body_limit_bytes: A longer body is refused, on the ordinary way.
    """

    def __init__(self, door: PredictHandler, new_id: Callable[[], str], body_limit_bytes: int) -> None:
        self.door = door
        self._new_id = new_id
        self._longest_bytes = min(INLINE_BYTES, body_limit_bytes)
        self._known = HeadCache()

    def offer(self, target: bytes, headers: RawHeaders, body: bytes, writer: ResponseWriter, read: bytes = b"") -> bool:
        """Answer a POST, or return ``False``: then nothing has happened, and ``writer`` is not used.

        Args:
            target: The request's target as it was sent.
            headers: Lower-case names and values.
            body: All of it.
            writer: Takes the answer.
            read: All bytes of the request, where the parser took one read for it alone: its head is remembered then.
        """
        model_name = model_of(target)
        if model_name is None or len(body) > self._longest_bytes:
            return False
        span = begin_span(self.door.tracer, PREDICT_ROUTE, headers) if self.door.tracer is not None else None
        path, identity = target.decode(), identify(headers, self._new_id, span)
        call = _Call(self.door, path, identity.request_id, lines_of(identity.headers), writer, span=span)
        self.door.in_flight += 1
        try:
            asked = read_headers(headers)
        except HeaderInvalid as problem:
            call.tell(problem)
            return True
        if read:
            self._known.learn(read, CachedHead(path, model_name, asked, len(body)), headers)
        call.predict(asked, model_name, body)
        return True

    def find_cached(self, read: bytes) -> tuple[CachedHead, bytes] | None:
        """Return the head and the body of bytes that are one request whose head was met before."""
        return self._known.find(read)

    def answer_cached(self, head: CachedHead, body: bytes, writer: ResponseWriter) -> None:
        """Answer what :meth:`find_cached` found."""
        request_id = self._new_id()
        lines = b"x-request-id: %b\r\n" % request_id.encode()
        span = None
        if self.door.tracer is not None:
            span = begin_span(self.door.tracer, PREDICT_ROUTE, ())  # what names a trace is in no known head
            lines = lines_of(identify((), lambda: request_id, span).headers)
        call = _Call(self.door, head.path, request_id, lines, writer, span=span)
        self.door.in_flight += 1
        call.predict(head.asked, head.model_name, body)


class _Call:
    """An express call under way: how its answer is worded, and where it goes."""

    __slots__ = ("_door", "_identity_lines", "_path", "_request_id", "_span", "_writer")

    def __init__(
        self,
        door: PredictHandler,
        path: str,
        request_id: str,
        identity_lines: bytes,
        writer: ResponseWriter,
        *,
        span: Span | None,
    ) -> None:
        self._door = door
        self._path = path
        self._request_id = request_id
        self._identity_lines = identity_lines
        self._writer = writer
        self._span = span

    def predict(self, asked: RequestOptions, model_name: str, body: bytes) -> None:
        """Give the call to the door."""
        if self._span is None:
            self._door.predict_by_callback(asked, model_name, body, self.tell)
        else:
            with within(self._span):
                self._door.predict_by_callback(asked, model_name, body, self.tell)

    def tell(self, found: Outcome | Exception) -> None:
        """Answer with what became of the call, or for a defect."""
        self._door.in_flight -= 1
        try:
            answer = self._answer_to(found)
        except Exception as defect:  # noqa: BLE001 - the last resort, as at the edge of the ordinary way
            answer = self._answer_to(defect)
        self._writer.answer(*answer)
        if self._span is not None:
            end_span(self._span, answer[0])

    def _answer_to(self, found: Outcome | Exception) -> tuple[int, bytes, bytes]:
        """Return status, lines of the head and body, as the door's own replies have them."""
        if self._span is None:
            return self._worded(found)
        with within(self._span):  # it may be told in another call's turn
            return self._worded(found)

    def _worded(self, found: Outcome | Exception) -> tuple[int, bytes, bytes]:
        door = self._door
        if type(found) is Outcome:
            error = found.served.error
            lines = door.receipt_lines(found) + self._identity_lines
            if error is None:
                return 200, _JSON_LINE + lines, answer_body(found)
            return status_of(error), problem_lines(error) + lines, problem_body(error, self._path)
        if isinstance(found, UnderstudyError):
            reply = door.refuse(found, self._path)
        else:
            _log.error("request.failed", request_id=self._request_id, path=self._path, exc_info=found)
            reply = door.refuse(InternalFault(), self._path)
        return reply.status, lines_of(reply.headers) + self._identity_lines, reply.body


def model_of(target: bytes) -> str | None:
    """Return the model that a target asks to predict; ``None`` for any other target."""
    return _model_of(target) if len(target) <= _MAX_TARGET else None


@lru_cache(maxsize=4_096)
def _model_of(target: bytes) -> str | None:
    match = _TARGET.fullmatch(target)
    return match.group(1).decode() if match is not None else None
