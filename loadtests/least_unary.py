"""The least that can make a good unary gRPC call, for little of a caller's processor time: no client.

It speaks to a server that answers well: no TLS, no second server, no GOAWAY, no reset, no flow control towards the
server, and an answer's trailers are those of a good answer when they are the same bytes as the first answer's, or begin
as they are said to.
"""

import asyncio
from typing import cast

import numpy as np

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
from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters._proto.understudy_oip_pb2 import ModelInferRequest

METHOD = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
_HEAD = b"".join(
    (
        b"\x83\x86",  # :method POST and :scheme http, both of the static table
        literal(b":path", METHOD.encode()),
        literal(b":authority", b"stub"),
        literal(b"te", b"trailers"),
        literal(b"content-type", b"application/grpc"),
        literal(b"grpc-timeout", b"500m"),
    )
)


class LeastUnary(asyncio.Protocol):
    """One connection.

    Args:
        good_trailers: How the trailers of each good answer begin, where each has others.
    """

    def __init__(self, good_trailers: bytes | None = None) -> None:
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._answers: dict[int, bytes] = {}
        self._next_stream = 1
        self._frames = Frames()
        self._window = Window()
        self._beginning = good_trailers
        self._trailers: bytes | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.write(PREFACE + hello())

    def call(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future has the answer's message."""
        stream = self._next_stream
        self._next_stream += 2
        answer = self._calls[stream] = asyncio.get_running_loop().create_future()
        message = b"\x00" + len(request).to_bytes(4, "big") + request
        self._transport.write(frame(HEADERS, END_HEADERS, stream, _HEAD) + frame(DATA, END_STREAM, stream, message))
        return answer

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole."""
        for one in self._frames.whole(data):
            self._take(one)

    def _take(self, one: Frame) -> None:
        if one.kind == DATA:
            self._answers[one.stream] = self._answers.get(one.stream, b"") + one.payload
            self._transport.write(self._window.take(len(one.payload)))
        elif one.kind == HEADERS:
            if one.flags & END_STREAM:
                self._end(one)
        else:
            self._transport.write(reply(one))

    def _end(self, trailers: Frame) -> None:
        found, beginning = trailers.payload, self._beginning
        if self._trailers is None:
            self._trailers = found
        answer, message = self._calls.pop(trailers.stream), self._answers.pop(trailers.stream, None)
        is_good = found == self._trailers if beginning is None else found.startswith(beginning)
        if message is None or not is_good:
            answer.set_exception(ValueError(f"these are not the trailers of a good answer: {trailers.payload!r}"))
        else:
            answer.set_result(message[5:])


def infer_request(rows: int) -> bytes:
    """Return a call of so many rows of 13 features, serialised."""
    request = ModelInferRequest(model_name="bench")
    request.inputs.add(name="input", datatype="FP32", shape=[rows, 13])
    request.raw_input_contents.append(np.zeros((rows, 13), "<f4").tobytes())
    return request.SerializeToString()
