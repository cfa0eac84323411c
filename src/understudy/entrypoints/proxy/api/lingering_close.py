"""Lingering close: what a caller still sends of its body is read before the connection ends with the answer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from understudy.entrypoints.proxy.api.predict_route import Receive, Scope, Send

MAX_PAUSE_SECONDS = 1.0
"""In which nothing comes. A caller that reads the answer closes the connection, so it costs that one nothing."""
MAX_SECONDS = 5.0
"""In all: a body that trickles holds a connection no longer."""
MAX_BYTES = 8_388_608
"""Of the body: twice the longest that is permitted."""


def lingering(send: Send, receive: Receive, is_incomplete: Callable[[], bool]) -> Send:
    """Return an ASGI ``send`` for a connection's last answer.

    The caller has all of the answer at once. While its body has not come to its end, what comes of it is read and
    dropped: closing a socket that has unread bytes resets the connection, and a caller that is still sending, as most
    clients are, would see the reset instead of the answer.

    Args:
        send: The server's; it closes the connection behind the last message.
        receive: The server's.
        is_incomplete: Whether some of the request's body has not come.

    Source:
        RFC 9112 §9.6; nginx, ``lingering_close``.
    """

    async def send_last(message: Scope) -> None:
        if message["type"] != "http.response.body" or message.get("more_body") or not is_incomplete():
            await send(message)
            return
        await send({**message, "more_body": True})
        await _drop_body(receive)
        await send({"type": "http.response.body", "body": b""})

    return send_last


async def _drop_body(receive: Receive) -> None:
    left_bytes = MAX_BYTES
    with suppress(TimeoutError):
        async with asyncio.timeout(MAX_SECONDS):
            while left_bytes > 0:
                async with asyncio.timeout(MAX_PAUSE_SECONDS):
                    message = await receive()
                if not message.get("more_body"):
                    return
                left_bytes -= len(message.get("body", b""))
