"""Request headers that the proxy reads, and headers as lines."""

import re
from collections.abc import Iterable, Mapping

from understudy.core.value import Value
from understudy.errors import HeaderInvalid

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
ENTITY_HEADER, CATEGORY_HEADER = b"x-entity-id", b"x-category"
TENSORS_AT_HEADER, ACCEPTED_CODINGS_HEADER = b"inference-header-content-length", b"accept-encoding"
DIALECT_HEADERS = frozenset({ENTITY_HEADER, CATEGORY_HEADER, TENSORS_AT_HEADER, ACCEPTED_CODINGS_HEADER})
"""Headers that calls in other protocols are read by, beside those of every call."""
_GRPC_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])")
GRPC_UNITS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
"""Of a deadline as gRPC writes it, in seconds."""
_MAX_DIGITS = 18
MAX_TIMEOUT_MS = 3_600_000


class RequestOptions(Value, frozen=True, gc=False):
    """What the headers of a request ask for."""

    authorization: str | None = None
    timeout_seconds: float | None = None
    content_length: int | None = None
    """Bytes of the body as the caller says; the HTTP parser refuses what is no number."""


_NO_WISHES = RequestOptions()


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


def wishes_of(fields: HeaderFields) -> RequestOptions:
    """Return what :func:`read_headers` does, but for the length where nothing else is asked for, as in most calls."""
    return _NO_WISHES if WISHES.isdisjoint(fields) else read_headers(fields)


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
        timeouts.append(int(match.group(1)) * GRPC_UNITS[match.group(2)])
    return min(timeouts)


def _milliseconds(name: bytes, value: bytes) -> float:
    if not value.isdigit() or len(value) > len(str(MAX_TIMEOUT_MS)) or not 0 < int(value) <= MAX_TIMEOUT_MS:
        raise HeaderInvalid(f"{name.decode()}: expected whole milliseconds from 1 to {MAX_TIMEOUT_MS}")
    return int(value) / 1000


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
