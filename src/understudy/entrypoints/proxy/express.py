"""The express lane: a plain predict call goes from its connection to the door without ASGI in between.

It answers what the predict lane would, byte for byte but for ids and times; a test compares the two. Whatever is
unusual about a request it declines, and the request then takes the ordinary way.
"""

import re
from collections.abc import Callable
from functools import lru_cache

import structlog

from understudy.entrypoints.proxy.door import INLINE_BYTES, PredictDoor, Reply
from understudy.entrypoints.proxy.headers import Identity, RawHeaders, identify
from understudy.errors import InternalFault

_log = structlog.get_logger(__name__)

EXPRESS = "understudy.express"
"""Where the server's state has the lane, once the lifespan has begun."""
_TARGET = re.compile(rb"/v1/models/([\w.~-]+)/predict", re.ASCII)
"""Only names that are the same however a path is read."""
_LONGEST_TARGET = 512
"""Bytes of a target that is remembered: its length is the caller's choice."""


class ExpressLane:
    """Takes whole requests, and answers by callback.

    Args:
        door: The predict door.
        new_id: Makes an id of 32 hex digits.
        body_limit_bytes: A longer body is refused, on the ordinary way.
    """

    def __init__(self, door: PredictDoor, new_id: Callable[[], str], body_limit_bytes: int) -> None:
        self._door = door
        self._new_id = new_id
        self._longest_bytes = min(INLINE_BYTES, body_limit_bytes)

    def offer(self, target: bytes, headers: RawHeaders, body: bytes, answer: Callable[[Reply], None]) -> bool:
        """Answer a POST, or return ``False``: then nothing has happened, and ``answer`` is not called.

        Args:
            target: The request's target as it was sent.
            headers: Lower-case names and values.
            body: All of it.
            answer: Takes the reply, now or later, once.
        """
        model_name = model_of(target)
        if model_name is None or len(body) > self._longest_bytes:
            return False
        path = target.decode()
        identity = identify(headers, self._new_id)

        def tell(found: Reply | Exception) -> None:
            answer(_identified(found if isinstance(found, Reply) else self._fault(found, identity, path), identity))

        self._door.predict_express(headers, path, model_name, body, tell)
        return True

    def _fault(self, defect: Exception, identity: Identity, path: str) -> Reply:
        _log.error("request.failed", request_id=identity.request_id, path=path, exc_info=defect)
        return self._door.refuse(InternalFault(), path)


def model_of(target: bytes) -> str | None:
    """Return the model that a target asks to predict; ``None`` for any other target."""
    return _model_of(target) if len(target) <= _LONGEST_TARGET else None


@lru_cache(maxsize=4_096)
def _model_of(target: bytes) -> str | None:
    match = _TARGET.fullmatch(target)
    return match.group(1).decode() if match is not None else None


def _identified(reply: Reply, identity: Identity) -> Reply:
    return Reply(reply.status, [*reply.headers, *identity.headers], reply.body)
