"""Request headers that the proxy reads, and the receipt that it sends back in headers."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from understudy.core.routing.policy import Role
from understudy.core.upstream.trace_context import read_traceparent
from understudy.core.value import Value
from understudy.errors import HeaderInvalid
from understudy.ports.telemetry.tracing import Span
from understudy.serving.call import Call
from understudy.serving.upstream.cached_inference import CacheResult

RawHeaders = Iterable[tuple[bytes, bytes]]

HeaderFields = Mapping[bytes, bytes]
"""Headers by their lower-case names, of several of one name the last."""

NAMES_REQUEST = frozenset({b"traceparent", b"tracestate", b"x-request-id"})
"""Headers that name a request, or the trace that it belongs to."""
DEADLINES = frozenset({b"grpc-timeout", b"x-envoy-expected-rq-timeout-ms", b"x-request-timeout-ms"})
"""Headers of callers' deadlines; a head with two of one name is refused where it is parsed."""
WISHES = DEADLINES | {b"authorization", b"content-encoding"}
"""Headers by which a caller asks for something."""
OPTION_HEADERS = WISHES | {b"content-length"}
"""Headers that :class:`RequestOptions` is made of."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_GRPC_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
_GRPC_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_LABEL_CHARACTERS = "/:+@,;=!*'() "
_MAX_DIGITS = 18
MAX_TIMEOUT_MS = 3_600_000
_CACHE_STAGES = {result: f"cache;desc={result}".encode() for result in CacheResult}


class Identity(NamedTuple):
    """A request's id, and the header lines that carry it in the answer, whatever that is."""

    request_id: str
    lines: bytes


class RequestOptions(Value, frozen=True, gc=False):
    """What the headers of a request ask for."""

    authorization: str | None = None
    timeout_seconds: float | None = None
    content_length: int | None = None
    """Bytes of the body as the caller says; the HTTP parser refuses what is no number."""


def identify(fields: HeaderFields, new_id: Callable[[], str], span: Span | None = None) -> Identity:
    """Return the caller's request id if it is usable, else a new one, and a span of the caller's trace.

    Args:
        fields: The request's headers.
        new_id: Makes an id of 32 hex digits.
        span: The call's own span, if it is traced: the answer names that one, in the caller's trace or a new one.
    """
    named = fields.get(b"x-request-id")
    request_id = new_id() if named is None or not _REQUEST_ID.fullmatch(named) else named.decode()
    lines = b"x-request-id: %b\r\n" % request_id.encode()
    if span is not None:
        return Identity(request_id, b"%btraceresponse: %b\r\n" % (lines, span.context.traceparent.encode()))
    parent = fields.get(b"traceparent")
    trace = read_traceparent(parent) if parent is not None else None
    if trace is not None:
        lines += b"traceresponse: 00-%b-%b-00\r\n" % (trace[0], new_id()[:16].encode())
    return Identity(request_id, lines)


def read_headers(fields: HeaderFields) -> RequestOptions:
    """Return what the headers ask for; of several deadlines the shortest holds.

    Raises:
        HeaderInvalid: A deadline that is no number above 0, or a compressed body.
    """
    if OPTION_HEADERS.isdisjoint(fields):
        return RequestOptions()
    if fields.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HeaderInvalid("content-encoding: send the body uncompressed")
    authorization = fields.get(b"authorization")
    return RequestOptions(
        authorization.decode("latin-1") if authorization is not None else None,
        None if DEADLINES.isdisjoint(fields) else _shortest_timeout(fields),
        content_length(fields.get(b"content-length")),
    )


def content_length(value: bytes | None) -> int | None:
    """Return the value of ``content-length``; of a number with more than 18 digits only those, over every limit.

    The HTTP parser lets zeros lead and blanks follow (RFC 9110 §8.6, RFC 9112 §5.1), so neither makes a body shorter.
    """
    if value is None:
        return None
    if len(value) <= _MAX_DIGITS and value.isdigit():
        return int(value)
    digits = value.strip()
    return int(digits.lstrip(b"0")[:_MAX_DIGITS] or b"0") if digits.isdigit() else None


def _shortest_timeout(found: HeaderFields) -> float:
    timeouts = [
        _milliseconds(name, found[name])
        for name in (b"x-request-timeout-ms", b"x-envoy-expected-rq-timeout-ms")
        if name in found
    ]
    if b"grpc-timeout" in found:
        match = _GRPC_TIMEOUT.fullmatch(found[b"grpc-timeout"])
        if match is None or int(match.group(1)) == 0:
            raise HeaderInvalid("grpc-timeout: expected up to 8 digits, not 0, and a unit of H, M, S, m, u or n")
        timeouts.append(int(match.group(1)) * _GRPC_UNITS[match.group(2)])
    return min(timeouts)


def _milliseconds(name: bytes, value: bytes) -> float:
    if not value.isdigit() or len(value) > len(str(MAX_TIMEOUT_MS)) or not 0 < int(value) <= MAX_TIMEOUT_MS:
        raise HeaderInvalid(f"{name.decode()}: expected whole milliseconds from 1 to {MAX_TIMEOUT_MS}")
    return int(value) / 1000


def receipt_lines(call: Call, *, name_version: bool) -> bytes:
    """Return the receipt (version, role, timings) of an answer, or of an error after the routing, as header lines.

    A version's label is percent-encoded where it has characters that a header may not.
    """
    version = call.version
    return b"x-prediction-id: %b\r\nserver-timing: route;dur=%.2f, features;dur=%.2f, %b, upstream;dur=%.2f\r\n%b" % (
        call.prediction_id.encode(),
        (call.routed - call.started) * 1000,
        (call.ready - call.routed) * 1000,
        _CACHE_STAGES[call.cache],
        (call.ended - call.ready) * 1000,
        _constant_lines(
            call.policy.generation,
            version.version if name_version else None,
            call.role,
            call.cache,
            version.cache_ttl_seconds if call.prediction is not None else None,
        ),
    )


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return headers as the lines of a response's head."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])


def headers_of_lines(lines: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers of lines, of a receipt or any others: the inverse of :func:`header_lines`."""
    found = []
    for line in lines.splitlines():
        name, _, value = line.partition(b": ")
        found.append((name, value))
    return found


@lru_cache(maxsize=4_096)
def _constant_lines(
    generation: int, label: str | None, role: Role, cache: CacheResult, ttl_seconds: int | None
) -> bytes:
    """Return the lines that many answers share; without ``label`` none has a version, without a TTL none a cache."""
    headers = [(b"x-policy-generation", b"%d" % generation)]
    if label is not None:
        headers.append((b"x-model-version", quote(label, safe=_LABEL_CHARACTERS).encode()))
        headers.append((b"x-model-role", role.value.encode()))
    if ttl_seconds is not None:
        headers.append((b"cache-status", _cache_status(cache, ttl_seconds)))
    return header_lines(headers)


def _cache_status(cache: CacheResult, ttl_seconds: int) -> bytes:
    """Return the value of ``cache-status`` (RFC 9211)."""
    if cache is CacheResult.HIT:
        return b"understudy; hit"
    if cache is CacheResult.MISS:
        return b"understudy; fwd=miss; stored; ttl=%d" % ttl_seconds
    if cache is CacheResult.TOO_LARGE:
        return b"understudy; fwd=miss; detail=too-large"
    return b"understudy; fwd=bypass"
