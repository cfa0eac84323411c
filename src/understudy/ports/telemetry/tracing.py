"""Traces: what became of one call, step by step, here and at whom it called.

The span of the call that is being worked on is :data:`CURRENT`. Without a tracer there is none, and everything that
would tell it something asks for it, finds ``None`` and goes on: that is all that tracing costs when it is off.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Protocol, TypeAlias

from understudy.core.upstream.trace_context import TraceContext

Value: TypeAlias = str | int | float | bool
Attributes: TypeAlias = Mapping[str, Value]
NO_ATTRIBUTES: Attributes = MappingProxyType({})
Headers: TypeAlias = tuple[tuple[str, str], ...]


class Span(Protocol):
    """A step of a trace, from when it is made until :meth:`end`. Nothing here waits, nothing raises.

    Attributes come from the registry, from enums and from figures, never from a request: no inputs, no entity ids, no
    keys. Attributes of a span that is not recorded are dropped.
    """

    @property
    def is_recorded(self) -> bool:
        """Whether it is recorded."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""

    @property
    def context(self) -> TraceContext:
        """Where it is."""

    @property
    def headers(self) -> Headers:
        """What a call carries that belongs to this step: ``traceparent`` and, if there is one, ``tracestate``.

        Of a span that is not recorded they are the caller's own, so that its trace goes on behind us.
        """

    def tell(self, attributes: Attributes) -> None:
        """Add what is known of it."""

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """Add something that happened at this moment."""

    def step(self, name: str) -> "Span":
        """Begin a step within it."""

    def attempt(self, method: str, endpoint: str) -> "Span":
        """Begin a call at an endpoint (``host:port``), of a gRPC method (``/package.Service/Method``) or a path."""

    def aside(self, name: str) -> "Span | None":
        """Begin a trace of its own that is linked to this span; ``None`` when that would not be recorded."""

    def together(self, others: "Sequence[Span]") -> "Span":
        """Return what stands for several spans in a step that they share.

        Its steps are those of the first one that is recorded, and they and the other ones are linked to each other.
        """

    def fail(self, error: str) -> None:
        """Say that it failed, and by what: a code or a kind, which becomes its ``error.type``."""

    def end(self) -> None:
        """End it."""


class Tracer(Protocol):
    """Makes the spans of calls that come in, and sends them off in the background, or drops and counts them."""

    def receive(self, name: str, caller: TraceContext | None, attributes: Attributes) -> Span:
        """Begin a call's own span, in its caller's trace if it names one."""

    async def close(self, timeout_seconds: float) -> None:
        """Send what is left, as far as that goes in the time."""


CURRENT: ContextVar[Span | None] = ContextVar("understudy_span", default=None)
"""The span of what goes on in this task or callback."""


@contextmanager
def within(span: Span | None) -> Iterator[None]:
    """Have everything inside belong to ``span``; ``None``: to no trace."""
    token = CURRENT.set(span)
    try:
        yield
    finally:
        CURRENT.reset(token)


@contextmanager
def step(name: str) -> Iterator[Span | None]:
    """Have everything inside be a step of the current span, if there is one."""
    parent = CURRENT.get()
    if parent is None:
        yield None
        return
    span = parent.step(name)
    try:
        with within(span):
            yield span
    except BaseException as problem:
        span.fail(type(problem).__name__)
        raise
    finally:
        span.end()


def called(method: str) -> tuple[str, Attributes]:
    """Return the span's name of an attempt and what it says of the method, as the semantic conventions name them.

    Of a path over HTTP without its query, which may hold a key.
    """
    verb, _, target = method.partition(" ")
    if target:
        path = target.partition("?")[0]
        return f"{verb} {path}", {"http.request.method": verb, "url.path": path}
    service, _, name = method.removeprefix("/").partition("/")
    return f"{service}/{name}", {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
