"""Requests below HTTP's own rules: bytes over a raw socket, in pieces, with pauses, and sockets that go away."""

import asyncio
import gzip
import socket
import struct
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.models import VISITS
from rigs.fuzz.values import dumps

Pieces: TypeAlias = tuple[bytes | float, ...]
"""Bytes to send, and pauses in seconds."""
PATIENCE_SECONDS = 20.0
"""A connection that the proxy neither answers nor closes for so long hangs."""
LAST = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
_BODY = dumps({"entity_id": "e-wire", "inputs": {}})
_PATH = f"/v1/models/{VISITS}/predict".encode()
GOOD_REQUEST = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n%b" % (_PATH, len(_BODY), _BODY)


class WireCase(NamedTuple):
    """What is done with one connection of its own."""

    kind: str
    pieces: Pieces
    requests: int
    """As many answers may come at most, beside interim ones."""
    ends: str = "asks"
    """``asks`` for a last answer and the end of the connection, ``shuts`` its own side, ``resets``, or ``waits``."""


class Heard(NamedTuple):
    """What came over a connection, and how it ended."""

    data: bytes
    is_over: bool
    seconds: float


async def play(port: int, case: WireCase) -> Heard:
    """Do what a case says, and read until the connection is over or :data:`PATIENCE_SECONDS` have passed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = bytearray()
    is_over = True
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            reading = asyncio.ensure_future(_read_all(reader, data))
            try:
                with suppress(OSError):  # the proxy has closed: what it said is read all the same
                    await _send(writer, case)
                if case.ends != "resets":
                    await reading
            finally:
                reading.cancel()
    except TimeoutError:
        is_over = False
    finally:
        if case.ends == "resets":
            _reset(writer)
        writer.close()
    return Heard(bytes(data), is_over, loop.time() - began)


async def _send(writer: asyncio.StreamWriter, case: WireCase) -> None:
    for piece in (*case.pieces, *((LAST,) if case.ends == "asks" else ())):
        if isinstance(piece, bytes):
            writer.write(piece)
            await writer.drain()
        else:
            await asyncio.sleep(piece)
    if case.ends == "shuts" and writer.can_write_eof():
        writer.write_eof()


async def _read_all(reader: asyncio.StreamReader, data: bytearray) -> None:
    with suppress(OSError):  # a reset is an end too
        while piece := await reader.read(65_536):
            data += piece


def _reset(writer: asyncio.StreamWriter) -> None:
    """Let closing send a reset instead of an end."""
    opened: socket.socket | None = writer.get_extra_info("socket")
    if opened is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def wire_cases(*, slow_share: float) -> SearchStrategy[WireCase]:
    """Draw connections; ``slow_share`` of them hold a place until the proxy's own deadline ends them."""
    quick = st.one_of(
        _request_lines(), _header_fields(), _lengths(), _chunked(), _pipelined(), _in_pieces(), _leaving()
    )
    every = max(round(1 / slow_share), 1) if slow_share else 0
    if not every:
        return quick
    return st.integers(0, every - 1).flatmap(lambda place: _never_whole() if place == 0 else quick)


def _request(line: bytes = b"", fields: bytes = b"", body: bytes = _BODY) -> bytes:
    line = line or b"POST %b HTTP/1.1" % _PATH
    return b"%b\r\nhost: localhost\r\n%b\r\n%b" % (line, fields, body)


def _request_lines() -> SearchStrategy[WireCase]:
    methods = st.sampled_from(
        [
            b"GET",
            b"POST",
            b"PUT",
            b"DELETE",
            b"OPTIONS",
            b"TRACE",
            b"PRI",
            b"CONNECT",
            b"get",
            b"",
            b"G\x00T",
            b"\xff",
            b"M" * 300,
            b"PATCH",
            b"PROPFIND",
            b"GET ",
            b" GET",
        ]
    )
    targets = st.sampled_from(
        [
            b"/livez",
            b"*",
            b"//",
            b"/..",
            b"/../livez",
            b"/livez/",
            b"/livez#fragment",
            b"/%",
            b"/%00",
            b"/%ff%fe",
            b"/a b",
            b"/\x00",
            b"/\xff\xfe",
            b"http://other/livez",
            b"http://[::1/",
            b"other:443",
            b"",
            b"?",
            b"#",
            b"/livez?" + b"q" * 3_000,
            b"/" + b"x" * 70_000,
            b"/v1/models/" + b"%2e%2e%2f" * 50 + b"/predict",
            b"/v1/models//predict",
            _PATH,
            b"/v1/models/%00/predict",
            b"/\t/",
        ]
    )
    versions = st.sampled_from(
        [
            b"HTTP/1.1",
            b"HTTP/1.0",
            b"HTTP/0.9",
            b"HTTP/2.0",
            b"HTTP/9.9",
            b"HTTP/1.1 x",
            b"http/1.1",
            b"",
            b"HTTP/1.",
            b"ICY",
        ]
    )
    ends = st.sampled_from([b"\r\n", b"\n", b"\r", b"\r\r\n"])
    return st.builds(
        lambda method, target, version, end: WireCase(
            "request line", (b" ".join((method, target, version)) + end + b"host: localhost" + end + end,), 1,
            "shuts" if method == b"CONNECT" else "asks",
        ),
        methods,
        targets,
        versions,
        ends,
    )  # fmt: skip


def _header_fields() -> SearchStrategy[WireCase]:
    lines = st.sampled_from(
        [
            b"no colon",
            b": empty",
            b"a b: c",
            b"x:\x00",
            b"x: \xff\xfe",
            b" folded: x",
            b"x: a\r\n folded",
            b"x:a\rb",
            b"x\x00: a",
            b"host: other",
            b"authorization: Bearer a.b\r\nauthorization: Bearer c.d",
            b"origin: https://evil.example",
            b"sec-fetch-site: cross-site",
            b"content-type: text/plain\r\norigin: null",
            b"x: " + b"v" * 20_000,
            b"n" * 20_000 + b": v",
            b"connection: close, keep-alive",
            b"x: a\nb: c",
            b"upgrade: websocket\r\nconnection: upgrade",
            b"upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAM",
            b"expect: 100-continue",
            b"expect: 200-ok",
            b"content-encoding: gzip",
            b"transfer-encoding: gzip, chunked",
            b"te: trailers",
            b"x-request-id: a\rb",
            b"trailer: x",
            b"keep-alive: timeout=-1",
            b"range: bytes=0-1",
            b"\xc3\xa9: x",
        ]
    )
    many = st.integers(1, 1_500).map(lambda count: b"".join(b"x-%d: %d\r\n" % (n, n) for n in range(count)))
    fields = (
        st.lists(lines, min_size=1, max_size=5).map(lambda drawn: b"".join(line + b"\r\n" for line in drawn)) | many
    )
    packed = gzip.compress(_BODY)
    return st.tuples(fields, st.sampled_from([_BODY, packed, b""])).map(
        lambda drawn: WireCase(
            "header fields", (_request(fields=drawn[0] + b"content-length: %d\r\n" % len(drawn[1]), body=drawn[1]),), 2
        )
    )


def _lengths() -> SearchStrategy[WireCase]:
    values = st.sampled_from(
        [
            b"0",
            b"5",
            b"-1",
            b"+5",
            b"0x5",
            b"5, 5",
            b"5,6",
            b"1e3",
            b" 5",
            b"5 5",
            b"",
            b"\xd9\xa5",
            b"9" * 40,
            b"18446744073709551615",
            b"1048577",
            b"4294967296",
            b"00000005",
        ]
    )
    encodings = st.sampled_from(
        [
            b"",
            b"transfer-encoding: chunked\r\n",
            b"transfer-encoding: xchunked\r\n",
            b"transfer-encoding : chunked\r\n",
            b"Transfer-Encoding: chunked, identity\r\n",
            b"transfer-encoding:\x0bchunked\r\n",
            b"transfer-encoding: chunked\r\n" * 2,
        ]
    )
    bodies = st.sampled_from(
        [b"", b"12345", _BODY, b"5\r\n12345\r\n0\r\n\r\n", b"0\r\n\r\nGET /livez HTTP/1.1\r\n\r\n", b"x" * 5_000]
    )

    def case_of(lengths: list[bytes], encoding: bytes, body: bytes) -> WireCase:
        fields = b"".join(b"content-length: %b\r\n" % length for length in lengths) + encoding
        return WireCase("lengths", (_request(fields=fields, body=body),), 4, "shuts")

    return st.builds(case_of, st.lists(values, max_size=2), encodings, bodies)


def _chunked() -> SearchStrategy[WireCase]:
    sizes = st.sampled_from(
        [
            b"%x" % len(_BODY),
            b"0",
            b"-1",
            b"fffffffffffffffff",
            b"ffffffff",
            b"zz",
            b"",
            b"5;x=y",
            b"5;" + b"e" * 9_000,
            b" 5",
            b"5 ",
            b"0x5",
        ]
    )
    ends = st.sampled_from([b"\r\n", b"\n", b"\r\n\r\n", b"x"])
    tails = st.sampled_from(
        [
            b"0\r\n\r\n",
            b"0\r\nx: y\r\n\r\n",
            b"",
            b"0\r\n" + b"t: u\r\n" * 500 + b"\r\n",
            b"0\r\ncontent-length: 5\r\n\r\n",
        ]
    )

    def case_of(chunks: list[tuple[bytes, bytes]], tail: bytes) -> WireCase:
        body = b"".join(size + b"\r\n" + _BODY + end for size, end in chunks) + tail
        return WireCase("chunks", (_request(fields=b"transfer-encoding: chunked\r\n", body=body),), 3, "shuts")

    return st.builds(case_of, st.lists(st.tuples(sizes, ends), max_size=4), tails)


def _pipelined() -> SearchStrategy[WireCase]:
    requests = st.sampled_from(
        [
            GOOD_REQUEST,
            LAST.replace(b"connection: close\r\n", b""),
            b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n",
            b"garbage\r\n\r\n",
            b"GET /livez HTTP/1.1\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nhost: evil.example\r\n\r\n",
            _request(fields=b"content-length: 2\r\n", body=b"{}"),
            b"\r\n\r\n",
            b"POST /v1/outcomes HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n",
        ]
    )
    return st.lists(requests, min_size=2, max_size=40).map(
        lambda drawn: WireCase("pipelined", (b"".join(drawn),), len(drawn) + 1)
    )


def _in_pieces() -> SearchStrategy[WireCase]:
    places = st.lists(st.integers(1, len(GOOD_REQUEST) - 1), min_size=1, max_size=6, unique=True).map(sorted)

    def case_of(cuts: list[int], pause_seconds: float) -> WireCase:
        parts = [GOOD_REQUEST[begin:end] for begin, end in zip([0, *cuts], [*cuts, None], strict=True)]
        return WireCase("in pieces", tuple(one for part in parts for one in (part, pause_seconds)), 1)

    return st.builds(case_of, places, st.sampled_from([0.0, 0.001, 0.01]))


def _leaving() -> SearchStrategy[WireCase]:
    """Callers that go before their answer: half of a request, or several whose answers they never read."""
    half = st.integers(0, len(GOOD_REQUEST)).map(lambda end: GOOD_REQUEST[:end])
    several = st.integers(1, 20).map(lambda count: GOOD_REQUEST * count)
    return st.builds(
        lambda data, pause, ends: WireCase("leaving", (data, pause), 20, ends),
        half | several,
        st.sampled_from([0.0, 0.002]),
        st.sampled_from(["resets", "shuts"]),
    )


def _never_whole() -> SearchStrategy[WireCase]:
    starts = st.sampled_from(
        [
            b"G",
            GOOD_REQUEST[:30],
            GOOD_REQUEST[:-20],
            _request(fields=b"content-length: 500000\r\n"),
            _request(fields=b"transfer-encoding: chunked\r\n", body=b"5\r\n1"),
        ]
    )
    drips = st.lists(st.sampled_from([b"x", b"a: b\r\n"]), max_size=3)
    return st.builds(
        lambda start, drip: WireCase(
            "never whole", (start, *(one for byte in drip for one in (0.2, byte))), 2, "waits"
        ),
        starts,
        drips,
    )
