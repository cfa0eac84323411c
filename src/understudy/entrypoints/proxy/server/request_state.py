"""How far a connection's parser has come with the request that it reads: one state, and a table of what follows it."""

from collections.abc import Mapping
from enum import Enum, auto


class State(Enum):
    """What has arrived of the request that is read."""

    IDLE = auto()
    """Nothing: every request before it is complete."""
    HEAD = auto()
    """Part of its head."""
    HOLDING = auto()
    """Its head. It may take the fast path, so its body is collected here."""
    HELD = auto()
    """All of such a request."""
    BODY = auto()
    """Its head. uvicorn has the request and gets its body."""
    UPGRADE = auto()
    """Its head, which asks for another protocol: it is read again as if it had not asked."""


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.IDLE: frozenset({State.HEAD}),
    State.HEAD: frozenset({State.HOLDING, State.BODY, State.UPGRADE}),
    State.HOLDING: frozenset({State.HELD, State.BODY}),
    State.HELD: frozenset({State.HEAD, State.IDLE}),
    State.BODY: frozenset({State.IDLE}),
    State.UPGRADE: frozenset({State.HEAD}),
}
"""All that a connection may do. Its tests hold it to that; looking each step up would cost 0.6 µs a request."""
