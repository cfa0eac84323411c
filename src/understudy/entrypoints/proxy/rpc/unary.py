"""What all unary methods share: identity, admission, the message, the span, and the status of what comes of it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError, Message

from understudy.core.upstream.trace_context import read_trace_context
from understudy.entrypoints.proxy.dialects.dialect import Outcome, Worded
from understudy.entrypoints.proxy.messages.answers import identify
from understudy.entrypoints.proxy.messages.headers import headers_of_lines, read_headers
from understudy.entrypoints.proxy.messages.reply import Header, HttpCall
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.rpc.company import Company
from understudy.entrypoints.proxy.rpc.incoming import Context, address_of, headers_of, message_of
from understudy.entrypoints.proxy.rpc.message_places import MessagePlaces
from understudy.entrypoints.proxy.rpc.statuses import Metadata, code_of, status_parts
from understudy.entrypoints.proxy.rpc.unread_answers import UnreadAnswers, handling
from understudy.entrypoints.proxy.server.body_budget import SMALL_BYTES, BodyBudget, HeldBody
from understudy.entrypoints.proxy.server.overload import OverloadManager
from understudy.errors import InternalFault, MalformedBody, NotOffered, Overloaded, UnderstudyError
from understudy.ports.telemetry.telemetry import Telemetry
from understudy.ports.telemetry.tracing import Span, Tracer, within

_log = structlog.get_logger(__name__)
M = TypeVar("M", bound=Message)


class Limits(NamedTuple):
    """Of what callers send."""

    message_bytes: int
    message_seconds: float
    calls: int
    """At a time, until gRPC has their answers."""


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
        try:
            return kind.FromString(self.body)
        except DecodeError:
            raise MalformedBody(f"the message is no {kind.DESCRIPTOR.name}") from None


class Method(NamedTuple):
    """A method that the port offers."""

    name: str
    answer: Callable[[Incoming], Awaitable[Outcome]]
    needs_key: bool = True
    """Whether a caller without one is refused, where the proxy asks for keys, before its message has come."""
    is_of_model: bool = False
    """Whether a model server answers it; then it has a span, too."""
    reads: bool = True
    """Whether its answer depends on its message. What does not is answered without it: callers without a key could
    have gRPC hold what they send."""
    seconds: float | None = None
    """In which its message has to come, where that is less than others have."""


class _Trail:
    """By what a call is found again: its id and its span."""

    request_id = ""
    identity: Metadata = ()
    """Trailing metadata that names it."""
    span: Span | None = None

    def begin(self, path: str, headers: Sequence[Header], tracer: Tracer | None, new_id: Callable[[], str]) -> None:
        """Begin the span, if there is a tracer, and name the call."""
        if tracer is not None:
            service, _, name = path[1:].partition("/")
            attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
            self.span = tracer.receive(path[1:], read_trace_context(headers), attributes)
        self.request_id, lines = identify(dict(headers), new_id, self.span)
        self.identity = _as_metadata(headers_of_lines(lines))

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
        places: Reads them.
        keyless: Reads those of methods that need no key, so that these take no place of others.
        unread: Holds calls whose answers gRPC sends.
        budget: Counts the bytes of long messages.
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
        places: MessagePlaces,
        keyless: MessagePlaces,
        *,
        unread: UnreadAnswers,
        budget: BodyBudget | None,
        overload: OverloadManager | None,
        new_id: Callable[[], str],
        tracer: Tracer | None,
        now: Callable[[], float],
    ) -> None:
        self._handler = handler
        self._telemetry = telemetry
        self._limits = limits
        self._places = places
        self.keyless = keyless
        self.unread = unread
        self._budget = budget
        self._overload = overload
        self._new_id = new_id
        self._tracer = tracer
        self._now = now
        self._under_way = 0
        self._company = Company()
        self.busy_at = float("-inf")
        """When a call last came."""

    def handler_of(self, service: str, method: Method) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return gRPC's own handler of a method.

        It is one of a stream of requests, since only such a one is called before the message has come, and can refuse
        its sender, or give up waiting. On the wire there is no difference.
        """
        path = f"/{service}/{method.name}"

        async def handle(_messages: object, context: Context) -> bytes:
            return await self._handled(path, method, context)

        return grpc.stream_unary_rpc_method_handler(handle)

    async def _handled(self, path: str, method: Method, context: Context) -> bytes:
        """Answer one call, or end it with a status."""
        self.busy_at = self._now()
        code = grpc.StatusCode.CANCELLED  # that of a call whose caller gives up
        trail = _Trail()
        try:
            outcome = await self._outcome(path, method, context, trail)
            code = grpc.StatusCode.OK if outcome.error is None else code_of(outcome.error)
        finally:
            self._telemetry.count("grpc_calls_total", path[1:], code.name)
            trail.end(code)
        receipt = (*_as_metadata(outcome.receipt), *trail.identity)
        self._hand_over(context, outcome)
        if outcome.error is not None:
            sentence, trailers = status_parts(outcome.error, path, outcome.row)
            await context.abort(code, sentence, (*trailers, *receipt))
        assert outcome.worded is not None
        context.set_trailing_metadata(receipt)
        return outcome.worded.body

    async def _outcome(self, path: str, method: Method, context: Context, trail: "_Trail") -> Outcome:
        held = HeldBody(self._budget, address_of(context.peer()))
        self._under_way += 1
        try:
            headers = headers_of(context.invocation_metadata() or (), context.time_remaining())
            tracer = self._tracer if method.is_of_model else None
            trail.begin(path, headers, tracer, self._new_id)
            with within(trail.span):
                return await self._answered(Incoming(path, headers, b"", held), method, context)
        except UnderstudyError as problem:
            self._handler.count_refusal(problem)
            return Outcome(error=problem)
        except Exception:  # noqa: BLE001 - the last resort: the log gets the cause, the caller no internals
            _log.exception("request.failed", request_id=trail.request_id, path=path)
            defect = InternalFault()
            self._handler.count_refusal(defect)
            return Outcome(error=defect)
        finally:
            self._under_way -= 1
            held.release()

    def _hand_over(self, context: Context, outcome: Outcome) -> None:
        """Give the call's place free: from now on gRPC sends its answer, as fast as the caller takes it."""
        size = 0 if outcome.worded is None else len(outcome.worded.body)
        self.unread.hold(handling(), context.peer(), size)

    async def _answered(self, call: Incoming, method: Method, context: Context) -> Outcome:
        reason = None if self._overload is None else self._overload.pressure.reason
        if reason is not None:  # HTTP's callers are refused with their connections, which gRPC accepts itself
            raise Overloaded(f"the proxy is short of {'memory' if reason == 'memory' else 'time'}")
        if self._under_way > self._limits.calls:
            raise Overloaded(f"the proxy answers {self._limits.calls} calls already")
        if method.needs_key:
            self._handler.require_key(read_headers(dict(call.headers)))
        if not method.reads:
            return await method.answer(call)
        seconds = method.seconds or self._limits.message_seconds
        places = self._places if method.needs_key else self.keyless
        body = message_of(await places.read(context, seconds), self._limits.message_bytes)
        if len(body) > SMALL_BYTES:
            call.held.count(len(body))
        headers = [*call.headers, (b"content-length", b"%d" % len(body))]
        return await self._together(call._replace(headers=headers, body=body), method)

    async def _together(self, call: Incoming, method: Method) -> Outcome:
        """Answer a call whose message is there; one for a model server goes on with others."""
        if not method.is_of_model:
            return await method.answer(call)
        try:
            await self._company.join()
            return await method.answer(call)
        finally:
            self._company.leave()


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


def _as_metadata(headers: Sequence[Header]) -> Metadata:
    return tuple((name.decode(), value.decode("latin-1")) for name, value in headers)
