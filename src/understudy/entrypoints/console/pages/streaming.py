"""The stream of an open page: it says that there is something new, and the page fetches that as it does by itself."""

import time
from collections.abc import AsyncIterator
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.streams.watches import Topic, Watches
from understudy.errors import UnderstudyError, UnknownRoute

CHECK_SECONDS = 1.0
"""How often it is looked whether the visitor may look still, and whether the process ends."""
BEAT_SECONDS = 2.0
"""Longest time without a message: a page that hears nothing for three of them asks by itself again."""
STREAM_SECONDS = 60.0
"""Longest time of one stream: its browser opens the next. A viewer that has vanished, or reads nothing of what it is
sent, opens none and so keeps its place no longer."""
_EVENTS = "text/event-stream"
_HEADERS = {"x-accel-buffering": "no"}  # a proxy in front that gathers answers would keep messages to itself
_RETRY, _BEAT = b"retry: 1000\n\n", b"event: beat\ndata:\n\n"
_ID_CHARACTERS = 16


class _Stream(StreamingResponse):
    """Counts its viewer as soon as it is begun: else another request would find the same place free."""

    def __init__(self, watches: Watches, messages: AsyncIterator[bytes]) -> None:
        super().__init__(messages, media_type=_EVENTS, headers=_HEADERS)
        self._watches = watches

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._watches.place():
            await super().__call__(scope, receive, send)


async def stream(console: Console, request: Request, topic: Topic) -> Response:
    """Return the stream of a page that its visitor was found to be allowed to see.

    Raises:
        UnknownRoute: It is no stream that is asked for, or a page of another site asks.
        Overloaded: Too many are open.
    """
    is_own = request.headers.get("sec-fetch-site", "same-origin") == "same-origin" and request.method == "GET"
    if _EVENTS not in request.headers.get("accept", "") or not is_own:
        raise UnknownRoute("this address is for the console's own script")
    watches = console.opened.watches
    watches.require_place()
    return _Stream(watches, _messages(console, request, topic))


async def _messages(console: Console, request: Request, topic: Topic) -> AsyncIterator[bytes]:
    """Return what is told: that there is something new, or at least that the stream lives.

    A browser whose stream was cut names what it was told last: as long as that holds, it is told nothing again.
    """
    watches = console.opened.watches
    told, sent_at = request.headers.get("last-event-id", ""), float("-inf")
    ends_at = time.monotonic() + STREAM_SECONDS
    yield _RETRY
    async with watches.watching(topic) as watch:
        while not watches.has_ended and time.monotonic() < ends_at:
            try:
                visitor = await console.visitor_of(request)
            except UnderstudyError:  # signed out, or revoked, or it cannot be known: the page asks, and is told
                return
            digest = watch.digest
            there = _id_of(digest, visitor.scopes)
            if digest and there != told:
                told, sent_at = there, time.monotonic()
                yield b"id: %b\nevent: news\ndata:\n\n" % there.encode()
            elif time.monotonic() - sent_at >= BEAT_SECONDS:
                sent_at = time.monotonic()
                yield _BEAT
            await watch.wait(digest, CHECK_SECONDS)


def _id_of(digest: str, scopes: frozenset[str]) -> str:
    """Return what names a page's content as a visitor with these scopes has it."""
    return sha256(" ".join((digest, *sorted(scopes))).encode()).hexdigest()[:_ID_CHARACTERS]
