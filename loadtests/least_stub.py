"""The least HTTP/2 server that answers a good unary gRPC call: a model server for which callers need not wait.

With ``grpc.aio`` a server is busy with a few thousand single calls a second, and then it is what callers wait for. This
one knows good callers only: no TLS, no reset, no flow control towards the caller, heads of one frame. It finds a method
by its name in the head's bytes; a caller that codes them, as nginx does, can make calls of one method only.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import cast

from loadtests.least_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    Frame,
    Frames,
    Window,
    frame,
    hello,
    literal,
    reply,
)

Answer = Callable[[bytes], bytes]
"""From a request's message to its answer's."""
_HEAD = b"\x88" + literal(b"content-type", b"application/grpc")  # :status 200 of the static table
_TRAILERS = literal(b"grpc-status", b"0")


class LeastServer(asyncio.Protocol):
    """One connection.

    Args:
        answers: By a part of the method's name.
        otherwise: For every other method.
    """

    def __init__(self, answers: Mapping[bytes, Answer], otherwise: Answer) -> None:
        self._answers = answers
        self._otherwise = otherwise
        self._frames = Frames(skip=len(PREFACE))
        self._window = Window()
        self._asked: dict[int, tuple[Answer, bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(hello())

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole, and answer what they end."""
        self._transport.write(b"".join(map(self._take, self._frames.whole(data))))

    def _take(self, one: Frame) -> bytes:
        if one.kind == HEADERS:
            self._asked[one.stream] = (self._method(one.payload), b"")
            return b""
        if one.kind != DATA:
            return reply(one)
        answer, message = self._asked.pop(one.stream)
        message += one.payload
        if not one.flags & END_STREAM:
            self._asked[one.stream] = (answer, message)
            return self._window.take(len(one.payload))
        return self._window.take(len(one.payload)) + _answered(one.stream, answer(message[5:]))

    def _method(self, head: bytes) -> Answer:
        return next((answer for name, answer in self._answers.items() if name in head), self._otherwise)


def _answered(stream: int, message: bytes) -> bytes:
    return (
        frame(HEADERS, END_HEADERS, stream, _HEAD)
        + frame(DATA, 0, stream, b"\x00" + len(message).to_bytes(4, "big") + message)
        + frame(HEADERS, END_HEADERS | END_STREAM, stream, _TRAILERS)
    )


async def serve_least(port: int, answers: Mapping[bytes, Answer], otherwise: Answer, stopped: asyncio.Event) -> None:
    """Serve until ``stopped`` is set."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: LeastServer(answers, otherwise), "127.0.0.1", port)
    await stopped.wait()
    server.close()
