"""The stream of an open page: it says that there is something new, and the page fetches that as it does by itself."""

import time
from collections.abc import AsyncIterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.streams.watches import Topic
from understudy.errors import UnderstudyError, UnknownRoute

CHECK_SECONDS = 1.0
"""How often it is looked whether the visitor may look still, and whether the process ends."""
BEAT_SECONDS = 2.0
"""Longest time without a message: a page that hears nothing for three of them asks by itself again."""
_EVENTS = "text/event-stream"
_HEADERS = {"x-accel-buffering": "no"}  # a proxy in front that gathers answers would keep messages to itself
_RETRY = b"retry: 1000\n\n"
NEWS, BEAT = b"event: news\ndata:\n\n", b"event: beat\ndata:\n\n"


async def stream(console: Console, request: Request, topic: Topic) -> Response:
    """Return the stream of a page that its visitor was found to be allowed to see.

    Raises:
        UnknownRoute: It is no stream that is asked for.
        Overloaded: Too many are open.
    """
    if _EVENTS not in request.headers.get("accept", ""):
        raise UnknownRoute("this address is for the console's own script")
    console.opened.watches.require_place()
    return StreamingResponse(_messages(console, request, topic), media_type=_EVENTS, headers=_HEADERS)


async def _messages(console: Console, request: Request, topic: Topic) -> AsyncIterator[bytes]:
    """Return what is told: that there is something new, or at least that the stream lives."""
    watches = console.opened.watches
    seen, sent_at = ("", frozenset[str]()), float("-inf")
    yield _RETRY
    async with watches.watching(topic) as watch:
        while not watches.has_ended:
            try:
                visitor = await console.visitor_of(request)
            except UnderstudyError:  # signed out, or revoked, or it cannot be known: the page asks, and is told
                return
            there = (watch.digest, visitor.scopes)
            if watch.digest and there != seen:
                seen, sent_at = there, time.monotonic()
                yield NEWS
            elif time.monotonic() - sent_at >= BEAT_SECONDS:
                sent_at = time.monotonic()
                yield BEAT
            await watch.wait(seen[0], CHECK_SECONDS)
