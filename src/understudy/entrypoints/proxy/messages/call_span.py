"""Server span of an incoming call: named by its route, in its caller's trace, ended with its answer."""

import re
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from understudy.core.upstream.trace_context import read_trace_context
from understudy.entrypoints.proxy.messages.headers import RawHeaders
from understudy.ports.telemetry.tracing import Attributes, Span, Tracer

PREDICT_ROUTE = "/v1/models/{model}/predict"
_TRACED = re.compile(rb"/v1/models/[^/]+(/versions/[^/]+)?/(predict|predict:batch|rank)")
_DIALECT = re.compile(
    rb"/(v1)/models/[^/]+(?:/(versions|labels)/[^/]+)?(:predict)|/(v2)/models/[^/]+(?:/(versions)/[^/]+)?(/infer)",
    re.IGNORECASE,
)
"""Calls in other protocols: the colon is KServe V1's and TensorFlow Serving's, ``infer`` the Open Inference Protocol's.
"""
_NAMED = {"": "", "versions": "/versions/{version}", "labels": "/labels/{label}"}


def route_of(raw_path: bytes) -> str | None:
    """Return the route of a path whose calls are traced, else ``None``. It has no names from callers (cardinality)."""
    dialect = _DIALECT.fullmatch(raw_path.replace(b"%3A", b":").replace(b"%3a", b":"))
    if dialect is not None:
        groups = dialect.group(1, 2, 3) if dialect[1] else dialect.group(4, 5, 6)
        kind, named, verb = ((one or b"").decode().lower() for one in groups)
        return f"/{kind}/models/{{model}}{_NAMED[named]}{verb}"
    head, slash, action = raw_path.rpartition(b"/")
    found = _TRACED.fullmatch(head + slash + unquote_to_bytes(action))
    if found is None:
        return None
    return f"/v1/models/{{model}}{'/versions/{version}' if found[1] else ''}/{found[2].decode()}"


def begin_span(tracer: Tracer, route: str, headers: RawHeaders) -> Span:
    """Begin the span of a POST to a route."""
    return tracer.receive(f"POST {route}", read_trace_context(headers), _attributes_of(route))


def end_span(span: Span, status: int) -> None:
    """End a call's span with its answer."""
    if span.is_recorded:
        span.tell({"http.response.status_code": int(status)})
    span.end()


@lru_cache(maxsize=16)
def _attributes_of(route: str) -> Attributes:
    """Return the attributes that a call has before it is answered; there are a dozen routes."""
    return {"http.request.method": "POST", "http.route": route}
