"""``make bench-unary``: what a unary call costs with grpc.aio, and with the least HTTP/2 that could make it (ADR 27).

An experiment, not a client: it speaks to the stub of this folder only. It knows no TLS, no second server, no GOAWAY, no
reset, no flow control towards the server, and takes an answer's trailers to be those of a good answer when they are the
same bytes as the first answer's. A real client would cost more; what this shows is the most that one could gain.
"""

import argparse
import asyncio
import json
import struct
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import cast

import grpc
import grpc.aio
import numpy as np
import uvloop
from e2e.stack import Stack, a_stack

from loadtests.machine import LOAD_CORE, SERVER_CORE, on_core
from loadtests.scene import start_stub
from understudy.adapters._proto.methods import OIP_MODEL_INFER, OIP_SERVICE, oip_method
from understudy.adapters._proto.understudy_oip_pb2 import ModelInferRequest

METHOD = oip_method(OIP_SERVICE, OIP_MODEL_INFER)
_FRAME = struct.Struct(">IBI")
_DATA, _HEADERS, _SETTINGS, _PING, _WINDOW_UPDATE = 0, 1, 4, 6, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_WINDOW = 2**30
_HALF_SECOND = b"500m"

Call = Callable[[bytes], Awaitable[bytes]]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return _FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a header field that no table keeps (RFC 7541 §6.2.2), without Huffman coding."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


class LeastUnary(asyncio.Protocol):
    """Frames of RFC 9113, as few as a good call needs."""

    def __init__(self) -> None:
        self._calls: dict[int, asyncio.Future[bytes]] = {}
        self._answers: dict[int, bytes] = {}
        self._next_stream = 1
        self._buffer = b""
        self._trailers: bytes | None = None
        self._received = 0
        self._head = b"".join(
            (
                b"\x83\x86",  # :method POST and :scheme http, both of the static table
                _literal(b":path", METHOD.encode()),
                _literal(b":authority", b"stub"),
                _literal(b"te", b"trailers"),
                _literal(b"content-type", b"application/grpc"),
                _literal(b"grpc-timeout", _HALF_SECOND),
            )
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello, with a large window and without a table of header fields."""
        self._transport = cast("asyncio.Transport", transport)
        settings = struct.pack(">HIHI", 1, 0, 4, _WINDOW)
        grow = _frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", _WINDOW))
        self._transport.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(_SETTINGS, 0, 0, settings) + grow)

    def call(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a request; the future has the answer's message."""
        stream = self._next_stream
        self._next_stream += 2
        answer = self._calls[stream] = asyncio.get_running_loop().create_future()
        message = b"\x00" + len(request).to_bytes(4, "big") + request
        self._transport.write(
            _frame(_HEADERS, _END_HEADERS, stream, self._head) + _frame(_DATA, _END_STREAM, stream, message)
        )
        return answer

    def data_received(self, data: bytes) -> None:
        """Take the frames that are whole."""
        data = self._buffer + data
        position = 0
        while len(data) - position >= _FRAME.size:
            length_and_kind, flags, stream = _FRAME.unpack_from(data, position)
            end = position + _FRAME.size + (length_and_kind >> 8)
            if end > len(data):
                break
            self._take(length_and_kind & 0xFF, flags, stream, data[position + _FRAME.size : end])
            position = end
        self._buffer = data[position:]

    def _take(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        if kind == _DATA:
            self._answers[stream] = self._answers.get(stream, b"") + payload
            self._received += len(payload)
            if self._received > _WINDOW // 4:
                self._transport.write(_frame(_WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received)))
                self._received = 0
        elif kind == _HEADERS and flags & _END_STREAM:
            if self._trailers is None:
                self._trailers = payload
            if payload != self._trailers:
                raise ValueError(f"these are not the trailers of a good answer: {payload!r}")
            self._calls.pop(stream).set_result(self._answers.pop(stream)[5:])
        elif kind in (_SETTINGS, _PING) and not flags & _ACK:
            self._transport.write(_frame(kind, _ACK, 0, payload if kind == _PING else b""))


async def _cpu_us(call: Call, request: bytes, in_flight: int, calls: int) -> float:
    """Return this process's processor time for a call, in microseconds, with so many under way all the time."""
    left = calls

    async def ask() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await call(request)

    began = time.process_time()
    await asyncio.gather(*(ask() for _ in range(in_flight)))
    return (time.process_time() - began) / calls * 1e6


def _request(rows: int) -> bytes:
    request = ModelInferRequest(model_name="bench")
    request.inputs.add(name="input", datatype="FP32", shape=[rows, 13])
    request.raw_input_contents.append(np.zeros((rows, 13), "<f4").tobytes())
    return request.SerializeToString()


async def _measure(port: int, rounds: int, calls: int) -> list[dict[str, float]]:
    _, least = await asyncio.get_running_loop().create_connection(LeastUnary, "127.0.0.1", port)
    found = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)

        async def by_grpc(request: bytes) -> bytes:
            return await method(request, timeout=0.5)

        for in_flight in (1, 2, 64):
            for rows in (1, 16):
                request = _request(rows)
                assert await by_grpc(request) == await least.call(request)
                ours, theirs = [], []
                for _ in range(rounds):
                    theirs.append(await _cpu_us(by_grpc, request, in_flight, calls))
                    ours.append(await _cpu_us(least.call, request, in_flight, calls))
                found.append({"in_flight": in_flight, "rows": rows, "grpc_aio": median(theirs), "least": median(ours)})
    return found


def main() -> int:
    """Measure, print a table, and return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=3_000)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="us-unary-")))
        opened.enter_context(on_core(LOAD_CORE))
        stack: Stack = opened.enter_context(a_stack(folder, "", None))
        port = start_stub(stack, "stub", [])
        with on_core(SERVER_CORE), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(_measure(port, asked.rounds, asked.calls))
    if asked.json:
        print(json.dumps(found))
        return 0
    print(
        f"{'calls in flight':>16}{'rows a call':>13}{'grpc.aio':>12}{'least HTTP/2':>15}{'ratio':>8}   (µs CPU a call)"
    )
    for one in found:
        ratio = one["grpc_aio"] / one["least"]
        print(f"{one['in_flight']:>16}{one['rows']:>13}{one['grpc_aio']:>12.1f}{one['least']:>15.1f}{ratio:>8.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
