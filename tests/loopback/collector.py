"""A collector of traces: a real HTTP server that reads what an exporter sends, protobuf and all."""

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1 import trace_pb2

KINDS = {
    trace_pb2.Span.SPAN_KIND_SERVER: "server",
    trace_pb2.Span.SPAN_KIND_CLIENT: "client",
    trace_pb2.Span.SPAN_KIND_INTERNAL: "internal",
}


class Place(NamedTuple):
    """Of a span or a link, in hex digits."""

    trace_id: str
    span_id: str


class Seen(NamedTuple):
    """A span as the collector got it."""

    name: str
    kind: str
    place: Place
    parent_id: str
    """``""``: the first of its trace."""
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[Place]
    failed: bool
    resource: dict[str, Any]
    trace_state: str
    nanoseconds: int


class Collector:
    """What came, and how the collector behaves."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.delay_seconds = 0.0
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def spans(self) -> list[Seen]:
        return [span for body in tuple(self.bodies) for span in spans_of(body)]

    def wait_for(self, condition: Callable[[list[Seen]], object], seconds: float = 30) -> list[Seen]:
        """Return the spans once they are such that ``condition`` holds."""
        give_up = time.monotonic() + seconds
        while not condition(found := self.spans):
            assert time.monotonic() < give_up, [(span.name, span.attributes) for span in found]
            time.sleep(0.02)
        return found


def spans_of(body: bytes) -> list[Seen]:
    return [
        Seen(
            span.name,
            KINDS[span.kind],
            Place(span.trace_id.hex(), span.span_id.hex()),
            span.parent_span_id.hex(),
            _values(span.attributes),
            [(event.name, _values(event.attributes)) for event in span.events],
            [Place(link.trace_id.hex(), link.span_id.hex()) for link in span.links],
            span.status.code == trace_pb2.Status.STATUS_CODE_ERROR,
            _values(group.resource.attributes),
            span.trace_state,
            span.end_time_unix_nano - span.start_time_unix_nano,
        )
        for group in ExportTraceServiceRequest.FromString(body).resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}


@contextmanager
def collecting(port: int = 0) -> Iterator[Collector]:
    """Run a collector; ``port`` 0 takes a free one."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            time.sleep(collector.delay_seconds)
            if collector.status == 200 and self.path == "/v1/traces":
                is_gzip = self.headers["content-encoding"] == "gzip"
                collector.bodies.append(gzip.decompress(body) if is_gzip else body)
                collector.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.status if self.path == "/v1/traces" else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_said: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    collector.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
