"""A caller's place in a trace, as the headers ``traceparent`` and ``tracestate`` tell it.

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


class TraceContext(NamedTuple):
    """A trace and the span in it that calls us.

    ``trace_id`` has 32 and ``span_id`` 16 hex digits in lower case, not all of them zeros; ``state`` is the other
    systems' own part, ``""`` when there is none.
    """

    trace_id: str
    span_id: str
    is_sampled: bool
    state: str = ""

    @property
    def traceparent(self) -> str:
        """The header that says so."""
        return f"00-{self.trace_id}-{self.span_id}-{int(self.is_sampled):02x}"


def read_trace_context(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """Return where a request's headers (with lower-case names) place it.

    ``None`` when they do not, or not so that it can be used: a call is never refused for that, it begins a new trace.
    Two ``traceparent`` contradict each other; a ``tracestate`` that is too long or no list is left out.
    """
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1 or len(parents[0]) > MAX_PARENT:
        return None
    found = _PARENT.fullmatch(parents[0].strip())
    if found is None:
        return None
    version, trace_id, span_id, flags, rest = found.groups()
    if version == b"ff" or (version == b"00" and rest is not None) or not (int(trace_id, 16) and int(span_id, 16)):
        return None
    return TraceContext(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED), _state_of(states))


def _state_of(values: list[bytes]) -> str:
    joined = b",".join(values).strip()
    return joined.decode() if len(joined) <= MAX_STATE and _STATE.fullmatch(joined) else ""
