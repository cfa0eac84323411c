"""The in-memory twin of ``ports.Tracer``: the ended spans, for tests to read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from understudy.core.upstream.trace_context import TraceContext
from understudy.ports.telemetry.tracing import NO_ATTRIBUTES, Attributes, Headers, Span, Value, called


@dataclass(slots=True)
class MemorySpan:
    """See :class:`understudy.ports.telemetry.tracing.Span`."""

    tracer: "MemoryTracer"
    name: str
    kind: str
    context: TraceContext
    parent: TraceContext | None = None
    caller: TraceContext | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    events: list[tuple[str, dict[str, Value]]] = field(default_factory=list)
    links: list[TraceContext] = field(default_factory=list)
    mates: "tuple[MemorySpan, ...]" = ()
    is_over: bool = False
    failed: bool = False

    @property
    def is_recorded(self) -> bool:
        """See the port."""
        return self.context.is_sampled

    @property
    def headers(self) -> Headers:
        """See the port."""
        place = self.context if self.caller is None or self.is_recorded else self.caller
        parent = ("traceparent", place.traceparent)
        return (parent, ("tracestate", place.state)) if place.state else (parent,)

    def tell(self, attributes: Attributes) -> None:
        """See the port."""
        if not self.is_over:
            self.attributes.update(attributes)

    def note(self, event: str, attributes: Attributes = NO_ATTRIBUTES) -> None:
        """See the port."""
        self.events.append((event, dict(attributes)))

    def step(self, name: str) -> "MemorySpan":
        """See the port."""
        return self._begin(name, "internal")

    def attempt(self, method: str, endpoint: str) -> "MemorySpan":
        """See the port."""
        name, described = called(method)
        begun = self._begin(name, "client")
        host, _, port = endpoint.rpartition(":")
        begun.tell(described)
        begun.tell({"server.address": host.strip("[]"), "server.port": int(port)})
        begun.links += [mate.context for mate in self.mates]
        for mate in self.mates:
            mate.links.append(begun.context)
        return begun

    def aside(self, name: str) -> "MemorySpan | None":
        """See the port."""
        if not self.is_recorded:
            return None
        return MemorySpan(self.tracer, name, "internal", self.tracer.place(None, sampled=True), links=[self.context])

    def together(self, others: Sequence[Span]) -> "MemorySpan":
        """See the port."""
        recorded = [one for one in (self, *others) if isinstance(one, MemorySpan) and one.is_recorded]
        if not recorded:
            return self
        first, *mates = recorded
        shared = first._begin(first.name, first.kind)  # noqa: SLF001 - its own kind
        shared.context, shared.parent, shared.mates = first.context, first.parent, tuple(mates)
        return shared

    def fail(self, error: str) -> None:
        """See the port."""
        self.failed = True
        self.attributes["error.type"] = error

    def end(self) -> None:
        """See the port."""
        if self.is_recorded and not self.is_over:
            self.tracer.ended.append(self)
        self.is_over = True

    def _begin(self, name: str, kind: str) -> "MemorySpan":
        if not self.is_recorded:
            return MemorySpan(self.tracer, name, kind, self.context, caller=self.caller)
        return MemorySpan(self.tracer, name, kind, self.tracer.place(self.context, sampled=True), parent=self.context)


class MemoryTracer:
    """See :class:`understudy.ports.telemetry.tracing.Tracer`; records a call unless its caller says otherwise."""

    def __init__(self) -> None:
        self.ended: list[MemorySpan] = []
        self._numbers = count(1)

    def receive(self, name: str, caller: TraceContext | None, attributes: Attributes) -> MemorySpan:
        """See the port."""
        place = self.place(caller, sampled=caller is None or caller.is_sampled)
        return MemorySpan(self, name, "server", place, parent=caller, caller=caller, attributes=dict(attributes))

    async def close(self, timeout_seconds: float) -> None:
        """See the port."""

    def place(self, parent: TraceContext | None, *, sampled: bool) -> TraceContext:
        """Return the context of a new span."""
        number = next(self._numbers)
        state = parent.state if parent is not None else ""
        return TraceContext(
            parent.trace_id if parent is not None else f"{number:032x}", f"{number:016x}", sampled, state
        )
