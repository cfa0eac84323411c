"""What a call is answered: request id and receipt in header lines, the prediction in the body.

What the answers of a version in one role have in common is made once, as a template: an answer is two ``%``.
"""

import re
from collections.abc import Callable
from functools import lru_cache
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
    named = fields.get(b"x-request-id")
    request_id = new_id() if named is None or not _REQUEST_ID.fullmatch(named) else named.decode()
    lines = b"x-request-id: %b\r\n" % request_id.encode()
    if span is not None:
        return request_id, b"%btraceresponse: %b\r\n" % (lines, span.context.traceparent.encode())
    parent = fields.get(b"traceparent")
    trace = read_traceparent(parent) if parent is not None else None
    if trace is not None:
        lines += b"traceresponse: 00-%b-%b-00\r\n" % (trace[0], new_id()[:16].encode())
    return request_id, lines


def answer_of(call: Call, *, name_version: bool, entity_id: str | None = None) -> tuple[bytes, bytes]:
    """Return the header lines and the body of a call's answer; of an error after the routing only the receipt's lines.

    Args:
        call: It has ended.
        name_version: Whether the receipt names version and role.
        entity_id: Names the call's entity among the members of a batch.
    """
    version, prediction = call.version, call.prediction
    ttl_seconds = None if prediction is None else version.cache_ttl_seconds
    lines, body = _templates(
        version.model_name, version.version, ttl_seconds, call.role, call.policy.generation, call.cache, name_version
    )
    prediction_id = call.prediction_id.encode()
    lines %= (prediction_id, *_milliseconds_of(call))
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


@lru_cache(maxsize=4_096)
def _templates(  # noqa: PLR0917 - cached by place
    model_name: str,
    label: str,
    ttl_seconds: int | None,
    role: Role,
    generation: int,
    cache: CacheResult,
    name_version: bool,  # noqa: FBT001 - as above
) -> tuple[bytes, bytes]:
    """Return header lines and body with places for a call's own values; without a TTL those of an error."""
    kind = b"" if ttl_seconds is None else header_lines([JSON])
    lines = kind + _receipt_lines(label, ttl_seconds, role, generation, cache, name_version)
    who = b'"model":%b,"version":%b,"role":"%b"' % (
        orjson.dumps(model_name),
        orjson.dumps(label),
        role.value.encode(),
    )
    return lines, b'{"prediction":%%b,%b,"prediction_id":"%%b","generation":%d}' % (literal(who), generation)


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
        return lines % (shown.prediction_id.encode(), *_milliseconds_of(shown))

    @property
    def headers(self) -> tuple[Header, ...]:
        """Return it as headers."""
        shown = self.shown
        ttl_seconds = None if shown.prediction is None else shown.version.cache_ttl_seconds
        timing, headers = _receipt_parts(
            self.version, ttl_seconds, self.role, shown.policy.generation, shown.cache, self.name_version
        )
        named = (b"x-prediction-id", shown.prediction_id.encode())
        return (named, (b"server-timing", timing % _milliseconds_of(shown)), *headers)


def _milliseconds_of(call: Call) -> tuple[float, float, float]:
    """Return how long a call's route, its stored features and its version took."""
    routed, ready = call.routed, call.ready
    return (routed - call.started) * 1000, (ready - routed) * 1000, (call.ended - ready) * 1000


@lru_cache(maxsize=4_096)
def _receipt_lines(  # noqa: PLR0917 - cached by place
    label: str,
    ttl_seconds: int | None,
    role: str,
    generation: int,
    cache: CacheResult,
    name_version: bool,  # noqa: FBT001 - as above
) -> bytes:
    """Return the lines of a receipt with places for a call's own values."""
    timing, headers = _receipt_parts(label, ttl_seconds, role, generation, cache, name_version)
    return b"x-prediction-id: %%b\r\nserver-timing: %b\r\n%b" % (timing, literal(header_lines(headers)))


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
