"""Traces by OpenTelemetry. Its import fails where the extra ``otel`` is not installed; only traces need it.

Spans wait in a bounded queue for a thread that sends them: no call waits for the collector, and no failure of the
collector reaches a call.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Lock, Thread
from typing import NamedTuple

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import OTEL_BSP_SCHEDULE_DELAY
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler, TraceIdRatioBased
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags, TraceState

from understudy import __version__
from understudy.core.upstream.trace_context import TraceContext
from understudy.ports.telemetry.tracing import NO_ATTRIBUTES, Attributes, Headers, Span, called

_log = structlog.get_logger(__name__)

BATCH_SPANS = 512
"""Most spans in one request to the collector."""
WARNING_SECONDS = 60.0
"""Shortest time between two log lines about lost spans."""
MAX_REASON = 300
Count = Callable[[str, int], None]
"""Takes an outcome of spans (``sent``, ``failed``, ``dropped``) and their number; from any thread."""


def check_environment() -> None:
    """Check the environment variables that the library reads itself when the tracer is created.

    Raises:
        ValueError: The library cannot use one of them.
    """
    SpanLimits()
    delay = 1.0
    with suppress(ValueError):  # a value that is no number it ignores
        delay = float(os.environ.get(OTEL_BSP_SCHEDULE_DELAY) or 1)
    if delay <= 0:
        raise ValueError(f"{OTEL_BSP_SCHEDULE_DELAY} must be above 0")


class Collector(NamedTuple):
    """Where spans go, over OTLP (protobuf over HTTP)."""

    url: str
    """With its path."""
    headers: Mapping[str, str]
    timeout_seconds: float
    """Longest time of one batch, retries included."""


class OtelSpan:
    """See :class:`understudy.ports.telemetry.tracing.Span`."""

    __slots__ = ("_caller", "_mates", "_span", "_tracer", "is_over", "is_recorded")

    def __init__(
        self,
        tracer: "OtelTracer",
        span: trace.Span,
        caller: TraceContext | None = None,
        mates: "tuple[OtelSpan, ...]" = (),
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._caller = caller
        self._mates = mates
        self.is_over = False
        self.is_recorded = span.get_span_context().trace_flags.sampled

    @property
    def context(self) -> TraceContext:
        """See the port."""
        own = self._span.get_span_context()
        state = own.trace_state.to_header() if own.trace_state else ""
        return TraceContext(f"{own.trace_id:032x}", f"{own.span_id:016x}", self.is_recorded, state)

    @property
    def headers(self) -> Headers:
        """See the port."""
        place = self.context if self._caller is None or self.is_recorded else self._caller
        parent = ("traceparent", place.traceparent)
        return (parent, ("tracestate", place.state)) if place.state else (parent,)

    def tell(self, attributes: Attributes) -> None:
        """See the port."""
        self._span.set_attributes(attributes)

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See the port."""
        self._span.add_event(event, attributes)

    def step(self, name: str) -> Span:
        """See the port."""
        return self._begin(name, SpanKind.INTERNAL)

    def attempt(self, method: str, endpoint: str) -> Span:
        """See the port."""
        if not self.is_recorded:
            return self._unrecorded()
        host, _, port = endpoint.rpartition(":")
        name, described = called(method)
        attributes: Attributes = {
            **described,
            "server.address": host.strip("[]"),
            "server.port": int(port) if port.isdecimal() else 0,
        }
        links = [Link(mate.otel_context) for mate in self._mates]
        begun = self._begin(name, SpanKind.CLIENT, attributes, links)
        for mate in self._mates:
            mate.link_to(begun)
        return begun

    def aside(self, name: str) -> Span | None:
        """See the port."""
        return self._tracer.aside(name, self.otel_context) if self.is_recorded else None

    def together(self, others: Sequence[Span]) -> Span:
        """See the port."""
        recorded = [one for one in (self, *others) if isinstance(one, OtelSpan) and one.is_recorded]
        if not recorded:
            return self
        first, *mates = recorded
        return OtelSpan(self._tracer, first._span, first._caller, tuple(mates))  # noqa: SLF001 - its own kind

    def fail(self, error: str) -> None:
        """See the port."""
        self._span.set_attribute("error.type", error)
        self._span.set_status(StatusCode.ERROR)

    def end(self) -> None:
        """See the port."""
        self.is_over = True
        self._span.end()

    @property
    def otel_context(self) -> SpanContext:
        """The span's context, as the library's type."""
        return self._span.get_span_context()

    def link_to(self, other: "OtelSpan") -> None:
        """Link it to a span of another trace."""
        self._span.add_link(other.otel_context)

    def _unrecorded(self) -> "OtelSpan":
        """Return a step of an unrecorded span: in the same place, with an end of its own."""
        return OtelSpan(self._tracer, self._span, self._caller)

    def _begin(
        self, name: str, kind: SpanKind, attributes: Attributes = NO_ATTRIBUTES, links: Sequence[Link] = ()
    ) -> "OtelSpan":
        if not self.is_recorded:
            return self._unrecorded()
        return self._tracer.begin(name, kind, self._span, attributes, links)


class OtelTracer:
    """Creates spans and exports them.

    Args:
        exporter: Sends spans to the collector.
        count: Counts spans by outcome.
        sampler: Decides which calls are recorded.
        resource: Attributes of this process.
        queue_spans: Most spans that wait or are being sent; further ones are dropped.
    """

    def __init__(
        self, exporter: SpanExporter, count: Count, *, sampler: Sampler, resource: Attributes, queue_spans: int
    ) -> None:
        _silence_library()
        self._sending = _Sending(exporter, count, queue_spans)
        self._asks_caller = isinstance(sampler, ParentBased)
        self._tracer = self._tracer_with(sampler, resource)
        # The trace of a shadow call begins after it was decided that the call is recorded.
        self._always = self._tracer_with(ALWAYS_ON, resource)

    def _tracer_with(self, sampler: Sampler, resource: Attributes) -> trace.Tracer:
        provider = TracerProvider(sampler=sampler, resource=Resource.create(resource), shutdown_on_exit=False)
        provider.add_span_processor(self._sending)
        return provider.get_tracer("understudy", __version__)

    def receive(self, name: str, caller: TraceContext | None, attributes: Attributes) -> OtelSpan:
        if caller is not None and not caller.is_sampled and self._asks_caller:
            # The library's decision, at a third of its processor time.
            return OtelSpan(self, _beside(caller), caller)
        parent = Context() if caller is None else trace.set_span_in_context(_remote(caller), Context())
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        return OtelSpan(self, span, caller)

    def begin(
        self, name: str, kind: SpanKind, parent: trace.Span, attributes: Attributes, links: Sequence[Link]
    ) -> OtelSpan:
        """Begin a step of a recorded span."""
        context = trace.set_span_in_context(parent, Context())
        return OtelSpan(self, self._always.start_span(name, context, kind, attributes, links))

    def aside(self, name: str, of: SpanContext) -> OtelSpan:
        """Begin a trace of its own."""
        return OtelSpan(self, self._always.start_span(name, Context(), SpanKind.INTERNAL, links=[Link(of)]))

    async def close(self, timeout_seconds: float) -> None:
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def finish() -> None:
            self._sending.shutdown()
            with suppress(RuntimeError):  # the loop may have given up waiting, and be closed
                loop.call_soon_threadsafe(is_done.set)

        # Not one of the loop's own threads: at its exit Python waits for those without a limit.
        Thread(target=finish, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_seconds):
                await is_done.wait()
        except TimeoutError:
            self._sending.give_up()


class _Sending(SpanProcessor):
    """Queues ended spans for the exporter: the library's queue and thread, with a bound of our own that counts drops.

    The library's queue drops its oldest spans silently when it is full; this bound is reached first. Two threads write
    here, each its own figures: the one that ends spans, and the one that sends them.
    """

    def __init__(self, exporter: SpanExporter, count: Count, queue_spans: int) -> None:
        self._exporter = _Counting(exporter, count, self._warn)
        self._count = count
        self._queue_spans = queue_spans
        self._queued = 0
        self._warned_at = -WARNING_SECONDS
        self._unreported = 0
        self._warning_lock = Lock()
        self._is_closed = False
        self._batches = BatchSpanProcessor(
            self._exporter, max_queue_size=queue_spans, max_export_batch_size=min(BATCH_SPANS, queue_spans)
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or drop and count it; both providers call this."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if self._is_closed or self._queued - self._exporter.settled >= self._queue_spans:
            self._count("dropped", 1)
            self._warn(1, "more spans than the queue holds")
            return
        self._queued += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        """Send the queued spans, and end."""
        self._is_closed = True
        self._batches.shutdown()  # type: ignore[no-untyped-call]  # the library has no type here

    def give_up(self) -> None:
        """Cancel the export, and count the spans that are left as dropped."""
        self._exporter.is_over = True
        left = self._queued - self._exporter.settled
        self._exporter.shutdown()
        if left:
            self._count("dropped", left)
            _log.warning("traces.lost", spans=left, why="the process ended before they were sent")

    def _warn(self, spans: int, why: str) -> None:
        """Log lost spans once a minute, with their number since the last line."""
        now = time.monotonic()
        with self._warning_lock:
            self._unreported += spans
            if self._is_closed or now - self._warned_at < WARNING_SECONDS:
                return
            self._warned_at = now
            unreported, self._unreported = self._unreported, 0
        _log.warning("traces.lost", spans=unreported, why=why)


class _Counting(SpanExporter):
    """Counts the spans of an exporter by outcome."""

    def __init__(self, exporter: SpanExporter, count: Count, warn: Callable[[int, str], None]) -> None:
        self._exporter = exporter
        self._count = count
        self._warn = warn
        self.settled = 0
        """Spans whose outcome is known."""
        self.is_over = False
        """Whether the spans that are still being sent were counted as dropped."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; never raises."""
        try:
            result = self._exporter.export(spans)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the next batch may succeed
            result, why = SpanExportResult.FAILURE, type(problem).__name__
        else:
            why = _last_message.last or "the exporter did not say why"
        if self.is_over:
            return result
        self.settled += len(spans)
        if result is SpanExportResult.SUCCESS:
            self._count("sent", len(spans))
        else:
            self._count("failed", len(spans))
            self._warn(len(spans), why)
        return result

    def shutdown(self) -> None:
        """End the exporter, and cancel its retries."""
        self._exporter.shutdown()


class _LastMessage(logging.Handler):
    """Keeps the exporter's last log message: it logs each attempt, of which we log one a minute."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:MAX_REASON]


_last_message = _LastMessage()
_ids = RandomIdGenerator()


def _silence_library() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [logging.NullHandler()]
    logging.getLogger("opentelemetry.exporter").handlers = [_last_message]


def _remote(caller: TraceContext) -> trace.Span:
    return NonRecordingSpan(
        SpanContext(
            int(caller.trace_id, 16),
            int(caller.span_id, 16),
            is_remote=True,
            trace_flags=TraceFlags(caller.is_sampled),
            trace_state=TraceState.from_header([caller.state]) if caller.state else None,
        )
    )


def _beside(caller: TraceContext) -> trace.Span:
    """Return an unrecorded span of a caller's trace."""
    return NonRecordingSpan(SpanContext(int(caller.trace_id, 16), _ids.generate_span_id(), is_remote=False))


def sampler_of(name: str, ratio: float) -> Sampler:
    """Return the sampler that ``OTEL_TRACES_SAMPLER`` names; ``ratio`` is for those that take one (0 to 1)."""
    root = {"on": ALWAYS_ON, "off": ALWAYS_OFF}.get(name.rpartition("_")[2]) or TraceIdRatioBased(ratio)
    return ParentBased(root) if name.startswith("parentbased_") else root


def exporter_of(collector: Collector | None) -> SpanExporter:
    """Return the exporter to a collector; ``None``: to standard output, a line each."""
    _silence_library()  # it reads its own variables too, and logs a header that it cannot use
    if collector is None:
        return ConsoleSpanExporter(formatter=lambda span: f"{span.to_json(indent=None)}\n")
    return OTLPSpanExporter(endpoint=collector.url, headers=dict(collector.headers), timeout=collector.timeout_seconds)
