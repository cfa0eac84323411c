"""What a call is answered: request id and receipt in header lines, the prediction in the body.

What the answers of a version in one role have in common is made once, as a template, and what those that end together
have in common is filled in for the first of them: an answer is two joins.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias
from urllib.parse import quote

import orjson

from understudy.core.routing.policy import Role
from understudy.core.upstream.trace_context import read_traceparent
from understudy.core.value import Value
from understudy.entrypoints.proxy.messages.headers import HeaderFields, header_lines
from understudy.entrypoints.proxy.messages.reply import JSON, Header
from understudy.ports.telemetry.tracing import Span
from understudy.serving.call import Call
from understudy.serving.upstream.cached_inference import CacheResult

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_LABEL_CHARACTERS = "/:+@,;=!*'() "


def identify(fields: HeaderFields, new_id: Callable[[], str], span: Span | None = None) -> tuple[str, bytes]:
    """Return a request's id, and the header lines that carry it in the answer, whatever that is.

    The id is the caller's if that is usable, else a new one; the lines name a span of the caller's trace, too.

    Args:
        fields: The request's headers.
        new_id: Makes an id of 32 hex digits.
        span: The call's own span, if it is traced: the answer names that one, in the caller's trace or a new one.
    """
    request_id = _request_id_of(fields, new_id)
    if span is None:
        return request_id.decode(), _identity_lines(request_id, fields, new_id)
    traceparent = span.context.traceparent.encode()
    return request_id.decode(), b"x-request-id: %b\r\ntraceresponse: %b\r\n" % (request_id, traceparent)


def identity_lines(fields: HeaderFields, new_id: Callable[[], str]) -> bytes:
    """Return the lines of :func:`identify` alone, for an answer that is not traced."""
    return _identity_lines(_request_id_of(fields, new_id), fields, new_id)


def _request_id_of(fields: HeaderFields, new_id: Callable[[], str]) -> bytes:
    named = fields.get(b"x-request-id")
    return new_id().encode() if named is None or not _REQUEST_ID.fullmatch(named) else named


def _identity_lines(request_id: bytes, fields: HeaderFields, new_id: Callable[[], str]) -> bytes:
    parent = fields.get(b"traceparent")
    trace = None if parent is None else read_traceparent(parent)
    if trace is None:
        return b"x-request-id: %b\r\n" % request_id
    names = request_id, trace[0], new_id()[:16].encode()
    return b"x-request-id: %b\r\ntraceresponse: 00-%b-%b-00\r\n" % names


def answer_of(call: Call, *, name_version: bool, entity_id: str | None = None) -> tuple[bytes, bytes]:
    """Return the header lines and the body of a call's answer; of an error after the routing only the receipt's lines.

    Args:
        call: It has ended.
        name_version: Whether the receipt names version and role.
        entity_id: Names the call's entity among the members of a batch.
    """
    version, prediction = call.version, call.prediction
    ttl_seconds = None if prediction is None else version.cache_ttl_seconds
    generation = call.policy.generation
    whose = version.model_name, version.version, ttl_seconds, call.role, generation, call.cache, name_version
    kind, receipt, body = _last_shared.of(whose, (call.started, call.routed, call.ready, call.ended))
    prediction_id = call.prediction_id.encode()
    lines = b"%bx-prediction-id: %b%b" % (kind, prediction_id, receipt)
    if prediction is None:
        return lines, b""
    body %= (prediction.json, prediction_id)
    defaulted = () if call.assembled is None else call.assembled.defaulted
    if entity_id is None and call.failed is None and not defaulted:
        return lines, body
    extra: dict[str, object] = {}
    if entity_id is not None:
        extra["entity_id"] = entity_id
    if call.fallback_from is not None:
        extra["fallback"] = {"from_version": call.route.version.version, "code": call.fallback_from.code}
    if defaulted:
        extra["defaulted"] = defaulted
    return lines, b"%b,%b" % (body[:-1], orjson.dumps(extra)[1:])


_Whose: TypeAlias = tuple[str, str, int | None, Role, int, CacheResult, bool]
"""Model, version, TTL (``None`` of an error), role, generation, cache, and whether the receipt names the version."""
_Times: TypeAlias = tuple[float, float, float, float]
"""When a call began, had its route and its stored features, and ended."""


class _LastShared:
    """Keeps what was made last: calls that began and ended together are answered one after the other."""

    def __init__(self) -> None:
        self._last: tuple[_Whose, _Times, tuple[bytes, bytes, bytes]] | None = None

    def of(self, whose: _Whose, times: _Times) -> tuple[bytes, bytes, bytes]:
        """Return what such answers have in common, as :func:`_templates` and with the times filled in."""
        last = self._last  # one value, which another thread may replace meanwhile and cannot change
        if last is not None and last[1] == times and last[0] == whose:
            return last[2]
        kind, receipt, body = _templates(*whose)
        parts = kind, receipt % _milliseconds_of(*times), body
        self._last = whose, times, parts
        return parts


_last_shared = _LastShared()


@lru_cache(maxsize=4_096)
def _templates(  # noqa: PLR0917 - cached by place
    model_name: str,
    label: str,
    ttl_seconds: int | None,
    role: Role,
    generation: int,
    cache: CacheResult,
    name_version: bool,  # noqa: FBT001 - as above
) -> tuple[bytes, bytes, bytes]:
    """Return the body's header lines, the receipt's and the body; without a TTL those of an error.

    The latter two have places for a call's own values, the receipt's from behind the prediction id on.
    """
    kind = b"" if ttl_seconds is None else header_lines([JSON])
    receipt = _receipt_lines(label, ttl_seconds, role, generation, cache, name_version)
    who = b'"model":%b,"version":%b,"role":"%b"' % (
        orjson.dumps(model_name),
        orjson.dumps(label),
        role.value.encode(),
    )
    body = b'{"prediction":%%b,%b,"prediction_id":"%%b","generation":%d}' % (literal(who), generation)
    return kind, receipt, body


class Receipt(Value, frozen=True, gc=False):
    """The receipt of a call in another protocol: of its answer, or of an error after the routing.

    ``shown`` is the row that it is of; ``version`` and ``role`` are those that answered, which several rows may mix.
    """

    shown: Call
    version: str
    role: str
    name_version: bool

    @property
    def lines(self) -> bytes:
        """Return it as header lines, as :func:`answer_of` has them."""
        shown = self.shown
        ttl_seconds = None if shown.prediction is None else shown.version.cache_ttl_seconds
        lines = _receipt_lines(
            self.version, ttl_seconds, self.role, shown.policy.generation, shown.cache, self.name_version
        )
        times = _milliseconds_of(shown.started, shown.routed, shown.ready, shown.ended)
        return b"x-prediction-id: %b%b" % (shown.prediction_id.encode(), lines % times)

    @property
    def headers(self) -> tuple[Header, ...]:
        """Return it as headers."""
        shown = self.shown
        ttl_seconds = None if shown.prediction is None else shown.version.cache_ttl_seconds
        timing, headers = _receipt_parts(
            self.version, ttl_seconds, self.role, shown.policy.generation, shown.cache, self.name_version
        )
        named = (b"x-prediction-id", shown.prediction_id.encode())
        times = _milliseconds_of(shown.started, shown.routed, shown.ready, shown.ended)
        return (named, (b"server-timing", timing % times), *headers)


def _milliseconds_of(started: float, routed: float, ready: float, ended: float) -> tuple[float, float, float]:
    """Return how long a call's route, its stored features and its version took."""
    return (routed - started) * 1000, (ready - routed) * 1000, (ended - ready) * 1000


@lru_cache(maxsize=4_096)
def _receipt_lines(  # noqa: PLR0917 - cached by place
    label: str,
    ttl_seconds: int | None,
    role: str,
    generation: int,
    cache: CacheResult,
    name_version: bool,  # noqa: FBT001 - as above
) -> bytes:
    """Return the lines of a receipt from behind the prediction id on, with places for a call's own times."""
    timing, headers = _receipt_parts(label, ttl_seconds, role, generation, cache, name_version)
    return b"\r\nserver-timing: %b\r\n%b" % (timing, literal(header_lines(headers)))


@lru_cache(maxsize=4_096)
def _receipt_parts(  # noqa: PLR0917 - cached by place
    label: str,
    ttl_seconds: int | None,
    role: str,
    generation: int,
    cache: CacheResult,
    name_version: bool,  # noqa: FBT001 - as above
) -> tuple[bytes, tuple[Header, ...]]:
    """Return the value of ``server-timing`` with places for a call's own times, and the headers behind it.

    A version's label is percent-encoded where it has characters that a header may not.
    """
    headers = [(b"x-policy-generation", b"%d" % generation)]
    if name_version:
        headers.append((b"x-model-version", quote(label, safe=_LABEL_CHARACTERS).encode()))
        headers.append((b"x-model-role", role.encode()))
    if ttl_seconds is not None:
        headers.append((b"cache-status", _cache_status(cache, ttl_seconds)))
    timing = b"route;dur=%%.2f, features;dur=%%.2f, cache;desc=%b, upstream;dur=%%.2f" % cache.value.encode()
    return timing, tuple(headers)


def literal(text: bytes) -> bytes:
    """Return text that stands in a template as it is."""
    return text.replace(b"%", b"%%")


def _cache_status(cache: CacheResult, ttl_seconds: int) -> bytes:
    """Return the value of ``cache-status`` (RFC 9211)."""
    if cache is CacheResult.HIT:
        return b"understudy; hit"
    if cache is CacheResult.MISS:
        return b"understudy; fwd=miss; stored; ttl=%d" % ttl_seconds
    if cache is CacheResult.TOO_LARGE:
        return b"understudy; fwd=miss; detail=too-large"
    return b"understudy; fwd=bypass"
