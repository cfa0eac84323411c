"""W3C trace context: a caller's trace and span, from the headers ``traceparent`` and ``tracestate``.

Source:
    W3C Trace Context, levels 1 and 2.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_PARENT = 512
"""Bytes of a ``traceparent`` that is read: 55 today, and more only in versions to come."""
MAX_STATE = 512
"""Bytes of ``tracestate`` that are passed on: what the standard asks for. Model servers bound their headers."""
_PARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_MEMBER = rb"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
# A value may hold blanks: only what follows a comma may skip them, or there were many ways to read many of them.
_STATE = re.compile(rb"%b(?:, *%b){0,31}" % (_MEMBER, _MEMBER))
_SAMPLED = 1
_NO_TRACE, _NO_SPAN = b"0" * 32, b"0" * 16


class TraceContext(NamedTuple):
    """A trace and the caller's span in it.

    ``trace_id`` has 32 and ``span_id`` 16 hex digits in lower case, not all of them zeros; ``state`` is the other
    systems' own part, ``""`` when there is none.
    """

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header for a call that belongs to this span."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def read_traceparent(value: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Return the trace id, the span id and the flags of a ``traceparent``; ``None`` for one that cannot be used."""
    found = _PARENT.fullmatch(value.strip()) if len(value) <= MAX_PARENT else None
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == b"ff" or (version == b"00" and rest is not None) or trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return None
    return trace_id, span_id, flags


def read_trace_context(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """Return the trace context of a request's headers (with lower-case names).

    ``None`` when there is none that can be used: a call is never refused for that, it begins a new trace. Two
    ``traceparent`` contradict each other; a ``tracestate`` that is too long or no list is left out.
    """
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    parent = read_traceparent(parents[0]) if len(parents) == 1 else None
    if parent is None:
        return None
    trace_id, span_id, flags = parent
    return TraceContext(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED), _state_of(states))


def _state_of(values: list[bytes]) -> str:
    joined = b",".join(values).strip()
    return joined.decode() if len(joined) <= MAX_STATE and _STATE.fullmatch(joined) else ""
