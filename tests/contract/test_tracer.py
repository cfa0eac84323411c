"""The contract of ``Tracer``: the in-memory twin, and OpenTelemetry with an exporter that keeps what it is given."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import SpanContext

from understudy.adapters.memory.tracing import MemoryTracer
from understudy.adapters.telemetry.otel import OtelTracer, sampler_of
from understudy.core.upstream.trace_context import TraceContext
from understudy.ports.telemetry.tracing import CURRENT, Tracer, step, within

CALLER = TraceContext("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", is_sampled=True, state="vendor=1")
METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Kept(NamedTuple):
    """An ended span, in words that both kinds have."""

    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str | None
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    failed: bool


class Keeping(SpanExporter):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.spans += spans
        return SpanExportResult.SUCCESS


class Subject(NamedTuple):
    """A tracer, and what ended until it is closed."""

    tracer: Tracer
    ended: Callable[[], Awaitable[list[Kept]]]


def of_memory() -> Subject:
    tracer = MemoryTracer()

    async def ended() -> list[Kept]:
        return [
            Kept(
                span.name, span.kind, span.context.trace_id, span.context.span_id,
                span.parent.span_id if span.parent is not None else None, span.attributes, span.events,
                [link.span_id for link in span.links], span.failed,
            )
            for span in tracer.ended
        ]  # fmt: skip

    return Subject(tracer, ended)


def of_otel() -> Subject:
    exporter = Keeping()
    sampler = sampler_of("parentbased_always_on", 1.0)
    tracer = OtelTracer(exporter, lambda _outcome, _spans: None, sampler=sampler, resource={}, queue_spans=100)

    async def ended() -> list[Kept]:
        await tracer.close(10)
        return [_kept(span) for span in exporter.spans]

    return Subject(tracer, ended)


def _kept(span: ReadableSpan) -> Kept:
    context, parent = span.get_span_context(), span.parent
    assert isinstance(context, SpanContext)
    return Kept(
        span.name, span.kind.name.lower(), f"{context.trace_id:032x}", f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent is not None else None, dict(span.attributes or {}),
        [(event.name, dict(event.attributes or {})) for event in span.events],
        [f"{link.context.span_id:016x}" for link in span.links], not span.status.is_unset,
    )  # fmt: skip


@pytest.fixture(params=[of_memory, of_otel], ids=["memory", "otel"])
def subject(request: pytest.FixtureRequest) -> Subject:
    made: Subject = request.param()
    return made


async def test_a_call_goes_on_in_its_callers_trace_and_its_steps_in_it(subject: Subject):
    call = subject.tracer.receive("POST /x", CALLER, {"http.route": "/x"})

    attempt = call.attempt(METHOD, "[::1]:8500")
    headers = dict(attempt.headers)
    attempt.tell({"rpc.grpc.status_code": 0})
    attempt.end()
    call.note("happened", {"what": "this"})
    call.end()
    client, server = await subject.ended()

    assert (server.name, server.kind, server.trace_id, server.parent_id) == (
        "POST /x", "server", CALLER.trace_id, CALLER.span_id,
    )  # fmt: skip
    assert (server.attributes, server.events, server.failed) == (
        {"http.route": "/x"}, [("happened", {"what": "this"})], False,
    )  # fmt: skip
    assert (client.name, client.kind, client.trace_id, client.parent_id) == (
        METHOD[1:], "client", CALLER.trace_id, server.span_id,
    )  # fmt: skip
    assert client.attributes == {
        "rpc.system": "grpc",
        "rpc.service": "inference.GRPCInferenceService",
        "rpc.method": "ModelInfer",
        "server.address": "::1",
        "server.port": 8500,
        "rpc.grpc.status_code": 0,
    }
    assert headers == {"traceparent": f"00-{CALLER.trace_id}-{client.span_id}-01", "tracestate": "vendor=1"}


async def test_an_attempt_over_http_is_named_by_its_path_without_the_query_which_may_hold_a_key(subject: Subject):
    call = subject.tracer.receive("POST /x", CALLER, {})

    call.attempt("POST /v7/risk?key=s3cret", "risk:80").end()
    call.end()
    client, _ = await subject.ended()

    assert (client.name, client.kind) == ("POST /v7/risk", "client")
    assert client.attributes == {
        "http.request.method": "POST",
        "url.path": "/v7/risk",
        "server.address": "risk",
        "server.port": 80,
    }


async def test_a_call_of_nobody_begins_a_trace(subject: Subject):
    one, other = (subject.tracer.receive("POST /x", None, {}) for _ in range(2))
    contexts = [one.context, other.context]

    one.end()
    other.end()
    ended = await subject.ended()

    assert [span.parent_id for span in ended] == [None, None]
    assert len({context.trace_id for context in contexts}) == 2
    assert all(context.is_sampled for context in contexts)


async def test_what_is_not_sampled_is_seen_by_nobody_and_its_callers_headers_go_on(subject: Subject):
    caller = CALLER._replace(is_sampled=False)

    call = subject.tracer.receive("POST /x", caller, {})
    attempt = call.attempt(METHOD, "127.0.0.1:8500")
    inner = call.step("features")
    for span in (attempt, inner):
        span.tell({"a": 1})
        span.fail("E503")
        span.note("happened")
        span.end()
    assert not call.is_over

    assert (call.aside("shadow"), call.is_recorded, call.context.trace_id) == (None, False, caller.trace_id)
    assert dict(attempt.headers) == {"traceparent": caller.traceparent, "tracestate": "vendor=1"}
    call.end()
    assert call.is_over
    assert await subject.ended() == []


async def test_a_trace_aside_is_its_own_and_linked_and_everything_within_belongs_to_it(subject: Subject):
    call = subject.tracer.receive("POST /x", CALLER, {})
    own = call.aside("shadow")
    assert own is not None
    with within(own), step("features") as inner:
        assert inner is CURRENT.get() is not None
    own.end()
    call.end()

    features, shadow, server = await subject.ended()

    assert (shadow.parent_id, shadow.links) == (None, [server.span_id])
    assert shadow.trace_id != server.trace_id
    assert (features.trace_id, features.parent_id) == (shadow.trace_id, shadow.span_id)


async def test_what_several_calls_share_is_the_first_ones_and_linked_to_the_others(subject: Subject):
    silent = subject.tracer.receive("POST /x", CALLER._replace(is_sampled=False), {})
    one, other = (subject.tracer.receive("POST /x", None, {}) for _ in range(2))

    shared = silent.together([one, other])
    attempt = shared.attempt(METHOD, "127.0.0.1:8500")
    for span in (attempt, one, other, silent):
        span.end()
    client, first, second = await subject.ended()

    assert (client.parent_id, client.links) == (first.span_id, [second.span_id])
    assert (first.links, second.links) == ([], [client.span_id])
    assert silent.together([]).headers == silent.headers


async def test_a_step_that_raises_has_failed_and_what_fails_says_by_what(subject: Subject):
    call = subject.tracer.receive("POST /x", None, {})
    with pytest.raises(TimeoutError), within(call), step("features"):
        raise TimeoutError
    call.fail("E503")
    call.end()

    features, server = await subject.ended()

    assert (features.failed, features.attributes["error.type"]) == (True, "TimeoutError")
    assert (server.failed, server.attributes["error.type"]) == (True, "E503")


def test_without_a_trace_there_are_no_steps():
    with step("features") as span:
        assert span is None
