"""How far a connection's parser has come with the request that it reads; its tests say which state may follow which."""

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
