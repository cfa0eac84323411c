"""Traces by OpenTelemetry. Its import fails where the extra ``otel`` is not installed; only traces need it.

Spans wait in a bounded queue for a thread that sends them: nothing here waits for the collector, and nothing that it
does or fails to do reaches a call.
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
from understudy.ports.tracing import NO_ATTRIBUTES, Attributes, Headers, Span

_log = structlog.get_logger(__name__)

BATCH_SPANS = 512
"""Most spans of one request to the collector."""
WARNING_SECONDS = 60.0
"""Least time between two lines of the log about spans that were lost."""
MAX_REASON = 300
Count = Callable[[str, int], None]
"""Takes what became of spans (``sent``, ``failed``, ``dropped``) and how many they were; from any thread."""


def check_environment() -> None:
    """Read what the library reads by itself, as it will when the tracer is made.

    Raises:
        ValueError: It cannot use one of its variables.
    """
    SpanLimits()
    delay = 1.0
    with suppress(ValueError):  # what is no number at all it does without
        delay = float(os.environ.get(OTEL_BSP_SCHEDULE_DELAY) or 1)
    if delay <= 0:
        raise ValueError(f"{OTEL_BSP_SCHEDULE_DELAY} must be above 0")


class Collector(NamedTuple):
    """Where spans go, over OTLP (protobuf over HTTP)."""

    url: str
    """All of it, with the path."""
    headers: Mapping[str, str]
    timeout_seconds: float
    """Longest time of one batch, attempts again included."""


class OtelSpan:
    """See :class:`understudy.ports.tracing.Span`."""

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
            return self._silent()
        service, _, name = method.removeprefix("/").partition("/")
        host, _, port = endpoint.rpartition(":")
        attributes: Attributes = {
            "rpc.system": "grpc",
            "rpc.service": service,
            "rpc.method": name,
            "server.address": host.strip("[]"),
            "server.port": int(port) if port.isdecimal() else 0,
        }
        links = [Link(mate.otel_context) for mate in self._mates]
        begun = self._begin(f"{service}/{name}", SpanKind.CLIENT, attributes, links)
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
        """Where it is, in the library's own words."""
        return self._span.get_span_context()

    def link_to(self, other: "OtelSpan") -> None:
        """Link it to a span of another trace."""
        self._span.add_link(other.otel_context)

    def _silent(self) -> "OtelSpan":
        """Return a step of a span that is not recorded: it is where that is, and ends by itself."""
        return OtelSpan(self._tracer, self._span, self._caller)

    def _begin(
        self, name: str, kind: SpanKind, attributes: Attributes = NO_ATTRIBUTES, links: Sequence[Link] = ()
    ) -> "OtelSpan":
        if not self.is_recorded:
            return self._silent()
        return self._tracer.begin(name, kind, self._span, attributes, links)


class OtelTracer:
    """Makes spans and sends them off.

    Args:
        exporter: Takes spans to where they are kept.
        count: Told what became of spans.
        sampler: Decides which calls are recorded.
        resource: What this process is called.
        queue_spans: Most spans that wait or are being sent; further ones are dropped.
    """

    def __init__(
        self, exporter: SpanExporter, count: Count, *, sampler: Sampler, resource: Attributes, queue_spans: int
    ) -> None:
        _quieten()
        self._sending = _Sending(exporter, count, queue_spans)
        self._asks_caller = isinstance(sampler, ParentBased)
        self._tracer = self._tracer_with(sampler, resource)
        # Whether a call is recorded was decided before its shadow's trace began.
        self._always = self._tracer_with(ALWAYS_ON, resource)

    def _tracer_with(self, sampler: Sampler, resource: Attributes) -> trace.Tracer:
        provider = TracerProvider(sampler=sampler, resource=Resource.create(resource), shutdown_on_exit=False)
        provider.add_span_processor(self._sending)
        return provider.get_tracer("understudy", __version__)

    def receive(self, name: str, caller: TraceContext | None, attributes: Attributes) -> OtelSpan:
        """See :class:`understudy.ports.tracing.Tracer`."""
        if caller is not None and not caller.is_sampled and self._asks_caller:
            # What the library would decide, at a third of its processor time.
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
        """See :class:`understudy.ports.tracing.Tracer`."""
        loop, is_done = asyncio.get_running_loop(), asyncio.Event()

        def finish() -> None:
            self._sending.shutdown()
            with suppress(RuntimeError):  # the loop may have gone on without waiting, and be closed
                loop.call_soon_threadsafe(is_done.set)

        # Not one of the loop's own threads: Python waits for those when it ends, for as long as it takes.
        Thread(target=finish, name="last-spans", daemon=True).start()
        try:
            async with asyncio.timeout(timeout_seconds):
                await is_done.wait()
        except TimeoutError:
            self._sending.give_up()


class _Sending(SpanProcessor):
    """The way of ended spans to the exporter: the library's queue and thread, with a bound of our own that counts.

    The library's queue drops its oldest spans without a word when it is full; this one never lets it come to that. Two
    threads write here, each its own figures: the one that ends spans, and the one that sends them.
    """

    def __init__(self, exporter: SpanExporter, count: Count, queue_spans: int) -> None:
        self._exporter = _Counting(exporter, count, self._warn)
        self._count = count
        self._queue_spans = queue_spans
        self._taken = 0
        self._warned_at = -WARNING_SECONDS
        self._unsaid = 0
        self._saying = Lock()
        self._is_closed = False
        self._batches = BatchSpanProcessor(
            self._exporter, max_queue_size=queue_spans, max_export_batch_size=min(BATCH_SPANS, queue_spans)
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Take a span, or drop and count it; both providers hand theirs here."""
        context = span.get_span_context()
        if context is None or not context.trace_flags.sampled:
            return
        if self._is_closed or self._taken - self._exporter.settled >= self._queue_spans:
            self._count("dropped", 1)
            self._warn(1, "more spans than the queue holds")
            return
        self._taken += 1
        self._batches.on_end(span)

    def shutdown(self) -> None:
        """Send what waits, and end."""
        self._is_closed = True
        self._batches.shutdown()  # type: ignore[no-untyped-call]  # the library left it without

    def give_up(self) -> None:
        """Break off what is being sent, and count what is left."""
        self._exporter.is_over = True
        left = self._taken - self._exporter.settled
        self._exporter.shutdown()
        if left:
            self._count("dropped", left)
            _log.warning("traces.lost", spans=left, why="the process ended before they were sent")

    def _warn(self, spans: int, why: str) -> None:
        """Say that spans were lost; once a minute, with how many they were since it was said last."""
        now = time.monotonic()
        with self._saying:
            self._unsaid += spans
            if self._is_closed or now - self._warned_at < WARNING_SECONDS:
                return
            self._warned_at = now
            unsaid, self._unsaid = self._unsaid, 0
        _log.warning("traces.lost", spans=unsaid, why=why)


class _Counting(SpanExporter):
    """Counts what becomes of the spans that an exporter is given."""

    def __init__(self, exporter: SpanExporter, count: Count, warn: Callable[[int, str], None]) -> None:
        self._exporter = exporter
        self._count = count
        self._warn = warn
        self.settled = 0
        """Spans whose fate is known."""
        self.is_over = False
        """Whether what is still being sent was counted as dropped."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans; never raises."""
        try:
            result = self._exporter.export(spans)
        except Exception as problem:  # noqa: BLE001 - whatever it is, the next batch may go well
            result, why = SpanExportResult.FAILURE, type(problem).__name__
        else:
            why = _words.last or "the exporter did not say why"
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
        """End the exporter, and break off what it waits for."""
        self._exporter.shutdown()


class _LastWords(logging.Handler):
    """Keeps what the exporter said last: it has a line for each attempt, of which we make one a minute."""

    last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()[:MAX_REASON]


_words = _LastWords()
_ids = RandomIdGenerator()


def _quieten() -> None:
    library = logging.getLogger("opentelemetry")
    library.propagate = False
    library.handlers = [logging.NullHandler()]
    logging.getLogger("opentelemetry.exporter").handlers = [_words]


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
    """Return a span of a caller's trace that nobody will see."""
    return NonRecordingSpan(SpanContext(int(caller.trace_id, 16), _ids.generate_span_id(), is_remote=False))


def sampler_of(name: str, ratio: float) -> Sampler:
    """Return the sampler that ``OTEL_TRACES_SAMPLER`` names; ``ratio`` is for those that take one (0 to 1)."""
    root = {"on": ALWAYS_ON, "off": ALWAYS_OFF}.get(name.rpartition("_")[2]) or TraceIdRatioBased(ratio)
    return ParentBased(root) if name.startswith("parentbased_") else root


def exporter_of(collector: Collector | None) -> SpanExporter:
    """Return what sends spans to a collector; ``None``: to standard output, a line each."""
    _quieten()  # it reads its own variables too, and repeats a header that it cannot use
    if collector is None:
        return ConsoleSpanExporter(formatter=lambda span: f"{span.to_json(indent=None)}\n")
    return OTLPSpanExporter(endpoint=collector.url, headers=dict(collector.headers), timeout=collector.timeout_seconds)
