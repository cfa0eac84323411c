"""What all unary methods share: identity, admission, the message, the span, and the status of what comes of it."""

from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf.message import Message

from understudy.core.upstream.trace_context import read_trace_context
from understudy.entrypoints.proxy.dialects.compression import MIN_BYTES, deflated, inflated_beside
from understudy.entrypoints.proxy.dialects.dialect import INLINE_OUTPUT_BYTES, Outcome, Worded
from understudy.entrypoints.proxy.dialects.handler import off_loop_if
from understudy.entrypoints.proxy.dialects.protobuf import INLINE_MESSAGE_BYTES, parse, parse_head
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.headers import headers_of_lines, read_headers
from understudy.entrypoints.proxy.messages.reply import Header, HttpCall
from understudy.entrypoints.proxy.overload.body_budget import SMALL_BYTES, HeldBody
from understudy.entrypoints.proxy.overload.overload import OverloadManager
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.rpc.http2.answer_blocks import CODINGS
from understudy.entrypoints.proxy.rpc.http2.message import Message as ReadMessage
from understudy.entrypoints.proxy.rpc.http2.request_head import MAX_METADATA_BYTES
from understudy.entrypoints.proxy.rpc.http2.stream import CallStream
from understudy.entrypoints.proxy.rpc.incoming import headers_of, timeout_header
from understudy.entrypoints.proxy.rpc.statuses import Metadata, code_of, status_parts
from understudy.entrypoints.proxy.rpc.waiting_calls import WaitingCalls
from understudy.errors import BodyTooLarge, InternalFault, NotOffered, Overloaded, UnderstudyError
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import Span, Tracer, within

Handle: TypeAlias = Callable[[CallStream], Coroutine[Any, Any, None]]
"""Answers the calls of one method."""
_log = structlog.get_logger(__name__)
M = TypeVar("M", bound=Message)


class Limits(NamedTuple):
    """Of what callers send."""

    message_bytes: int
    message_seconds: float
    calls: int
    """At a time, from when their messages are there until they have answers; and as many that wait for theirs."""


class Incoming(NamedTuple):
    """A call whose caller has a key, and whose message has come."""

    path: str
    headers: list[Header]
    body: bytes
    held: HeldBody

    @property
    def http_call(self) -> HttpCall:
        """The call as the handler of dialects takes it."""
        return HttpCall(self.path, self.headers, self._read, self._hold)

    async def _read(self) -> bytes:
        return self.body

    def _hold(self, size: int) -> None:
        if size > SMALL_BYTES:
            self.held.count(size)

    def parsed(self, kind: type[M]) -> M:
        """Return the message.

        Raises:
            MalformedBody: It is none of this kind.
        """
        return parse(kind, self.body)

    def begun(self, kind: type[M], head: Collection[int]) -> tuple[M, bool]:
        """Return the message, of a long one these fields alone, and whether it is whole.

        Raises:
            MalformedBody: It is none of this kind, or a long one of very many fields.
        """
        if len(self.body) <= INLINE_MESSAGE_BYTES:
            return parse(kind, self.body), True
        return parse_head(kind, self.body, head), False


class Method(NamedTuple):
    """A method that the port offers."""

    name: str
    answer: Callable[[Incoming], Awaitable[Outcome]]
    needs_key: bool = True
    """Whether a caller without one is refused, where the proxy asks for keys, before its message has come."""
    is_of_model: bool = False
    """Whether a model server answers it; then it has a span, too."""
    reads: bool = True
    """Whether its answer depends on its message. What does not is answered without it: callers need no key to send
    it."""
    seconds: float | None = None
    """In which its message has to come, where that is less than others have."""
    max_bytes: int | None = None
    """That its message may have, where that is less than others have. One that the event loop parses whole has less."""


class _Trail:
    """By what a call is found again: its id and its span."""

    request_id = ""
    identity: Sequence[Header] = ()
    """Trailing metadata that names it."""
    span: Span | None = None

    def begin(self, path: str, headers: Sequence[Header], tracer: Tracer | None, new_id: Callable[[], str]) -> None:
        """Begin the span, if there is a tracer, and name the call."""
        if tracer is not None:
            service, _, name = path[1:].partition("/")
            attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
            self.span = tracer.receive(path[1:], read_trace_context(headers), attributes)
        self.request_id, lines = identify(dict(headers), new_id, self.span)
        self.identity = headers_of_lines(lines)

    def end(self, code: grpc.StatusCode) -> None:
        """End the span."""
        if self.span is not None:
            self.span.tell({"rpc.grpc.status_code": int(code.value[0])})
            self.span.end()


class UnaryCalls:
    """Answers unary calls, whatever their method.

    Args:
        handler: Admits callers, and counts refusals.
        telemetry: Counts calls by method and status code.
        limits: Of messages.
        overload: Knows when the process is short of memory or time.
        new_id: Makes an id of 32 hex digits.
        tracer: Makes the spans of calls, if they are traced.
        now: The event loop's clock.
    """

    def __init__(
        self,
        handler: PredictHandler,
        telemetry: Telemetry,
        limits: Limits,
        *,
        overload: OverloadManager | None,
        new_id: Callable[[], str],
        tracer: Tracer | None,
        now: Callable[[], float],
    ) -> None:
        self._handler = handler
        self._telemetry = telemetry
        self._limits = limits
        self._overload = overload
        self._new_id = new_id
        self._tracer = tracer
        self._now = now
        self._under_way = 0
        self.waiting = WaitingCalls(limits.calls)
        self.busy_at = float("-inf")
        """When a call last came."""

    def handler_of(self, service: str, method: Method) -> Handle:
        """Return what answers the calls of a method."""
        return partial(self._handled, f"/{service}/{method.name}", method)

    async def _handled(self, path: str, method: Method, stream: CallStream) -> None:
        """Answer one call, or end it with a status."""
        self.busy_at = self._now()
        code = grpc.StatusCode.CANCELLED  # that of a call whose caller gives up
        trail = _Trail()
        try:
            outcome = await self._outcome(path, method, stream, trail)
            code = grpc.StatusCode.OK if outcome.error is None else code_of(outcome.error)
        finally:
            self._telemetry.count("grpc_calls_total", path[1:], code.name)
            trail.end(code)
        if outcome.error is not None:
            sentence, trailers = status_parts(outcome.error, path, outcome.row)
            stream.fail(int(code.value[0]), sentence, (*as_bytes(trailers), *outcome.receipt_headers, *trail.identity))
            return
        assert outcome.worded is not None
        body, coding = outcome.worded.body, stream.answer_coding
        if coding is not None and len(body) >= MIN_BYTES:
            body = await off_loop_if(len(body) > INLINE_OUTPUT_BYTES, deflated, body, coding)
        else:
            coding = None
        stream.answer(body, (*outcome.receipt_headers, *trail.identity), coding)

    async def _outcome(self, path: str, method: Method, stream: CallStream, trail: "_Trail") -> Outcome:
        held = stream.message.held
        try:
            headers = headers_of(stream.head.metadata)
            tracer = self._tracer if method.is_of_model else None
            trail.begin(path, headers, tracer, self._new_id)
            call = Incoming(path, headers, b"", held)
            if trail.span is None:
                return await self._answered(call, method, stream)
            with within(trail.span):
                return await self._answered(call, method, stream)
        except UnderstudyError as problem:
            self._handler.count_refusal(problem)
            return Outcome(error=problem)
        except Exception:  # noqa: BLE001 - the last resort: the log gets the cause, the caller no internals
            _log.exception("request.failed", request_id=trail.request_id, path=path)
            defect = InternalFault()
            self._handler.count_refusal(defect)
            return Outcome(error=defect)
        finally:
            held.release()

    async def _answered(self, call: Incoming, method: Method, stream: CallStream) -> Outcome:
        reason = None if self._overload is None else self._overload.pressure.reason
        if reason is not None:
            raise Overloaded(f"the proxy is short of {'memory' if reason == 'memory' else 'time'}")
        if stream.head.is_too_long:
            raise BodyTooLarge(f"the call's metadata is longer than {MAX_METADATA_BYTES} bytes")
        if method.needs_key:
            self._handler.access.require_key(read_headers(dict(call.headers)))
        found, has_waited = None, not stream.message.is_found
        if method.reads:
            found = await self.waiting.read(stream, method.seconds or self._limits.message_seconds, method.max_bytes)
        if self._under_way >= self._limits.calls:
            raise Overloaded(f"the proxy answers {self._limits.calls} calls already")
        self._under_way += 1
        try:
            if found is not None:
                call = await self._with_message(call, found, method, stream, has_waited=has_waited)
            return await method.answer(call)
        finally:
            self._under_way -= 1

    async def _with_message(
        self, call: Incoming, found: ReadMessage, method: Method, stream: CallStream, *, has_waited: bool
    ) -> Incoming:
        body = found.body
        if found.is_compressed:
            body = await self._inflated(body, stream, method.max_bytes or self._limits.message_bytes)
            call.held.count(len(body))
        call.headers.append((b"content-length", b"%d" % len(body)))
        if stream.head.timeout is not None:
            call.headers.append(_deadline_of(stream, has_waited=has_waited))
        return call._replace(body=body)

    async def _inflated(self, body: bytes, stream: CallStream, limit_bytes: int) -> bytes:
        """Return a message without its coding; the answer may have that one, too."""
        coding = stream.head.coding
        if coding not in CODINGS:
            raise NotOffered("the message is compressed, and not by gzip or deflate (grpc-encoding)")
        stream.answer_coding = stream.accepted_coding()
        return await inflated_beside(self._handler.body_pool, body, coding, limit_bytes)


def _deadline_of(stream: CallStream, *, has_waited: bool) -> Header:
    left = stream.seconds_left() if has_waited else None
    assert stream.head.timeout is not None
    return (b"grpc-timeout", stream.head.timeout) if left is None else timeout_header(left)


def message(found: Message) -> Outcome:
    """Return an answer that is one message."""
    return Outcome(Worded([], found.SerializeToString()))


def not_offered(name: str, what: str) -> Method:
    """Return a method that is refused to every caller.

    Args:
        name: Its name.
        what: Says what it is, and what to do in its place.
    """

    async def refuse(_call: Incoming) -> Outcome:
        raise NotOffered(what)

    return Method(name, refuse, needs_key=False, reads=False)


def as_bytes(metadata: Metadata) -> tuple[Header, ...]:
    """Return metadata as it is sent."""
    return tuple(
        (name.encode(), value.encode("latin-1") if isinstance(value, str) else value) for name, value in metadata
    )
