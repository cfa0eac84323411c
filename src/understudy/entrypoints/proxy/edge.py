"""The outermost layer: every answer names its request, and every defect is in the log under that name."""

from collections.abc import Awaitable, Callable, Iterable

import structlog

from understudy.entrypoints.proxy.connection import WRITE_WHOLE, WriteWhole
from understudy.entrypoints.proxy.door import PredictDoor
from understudy.entrypoints.proxy.headers import Identity, identify
from understudy.entrypoints.proxy.lane import App, Receive, Scope, Send, send_reply
from understudy.errors import InternalFault

_log = structlog.get_logger(__name__)


class Edge:
    """Adds ``x-request-id`` and ``traceresponse`` to whatever answers, and answers for what fails.

    Args:
        app: What answers.
        door: Returns what words refusals; it is there once the lifespan has begun.
        new_id: Makes an id of 32 hex digits.
    """

    def __init__(self, app: App, door: Callable[[], PredictDoor], new_id: Callable[[], str]) -> None:
        self._app = app
        self._door = door
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        identity = identify(scope["headers"], self._new_id)
        started = False

        def send_identified(message: Scope) -> Awaitable[None]:
            # Not a coroutine of its own: each message of each answer would pay for it.
            nonlocal started
            if not started:
                started = True
                message["headers"] = [*message["headers"], *identity.headers]
            return send(message)

        if WRITE_WHOLE in scope:
            scope[WRITE_WHOLE] = _identified(scope[WRITE_WHOLE], identity)
        try:
            await self._app(scope, receive, send_identified)
        except Exception:  # noqa: BLE001 - the last resort: no internals for the caller, all of them for the log
            _log.exception("request.failed", request_id=identity.request_id, path=scope["path"])
            if not started:
                await send_reply(send_identified, self._door().refuse(InternalFault(), scope["path"]))
        finally:
            scope.pop(WRITE_WHOLE, None)  # it leads back to the scope: only the garbage collector would end that


def _identified(write_whole: WriteWhole, identity: Identity) -> WriteWhole:
    def write(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        return write_whole(status, (*headers, *identity.headers), body)

    return write
