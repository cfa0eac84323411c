"""Frames of HTTP/2 (RFC 9113), as few as a good unary gRPC call needs; for both its ends."""

import struct
from collections.abc import Iterator
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
WINDOW = 2**30
_DEFAULT_WINDOW = 65_535
_FRAME = struct.Struct(">IBI")


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame's bytes."""
    return _FRAME.pack(len(payload) << 8 | kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """Return a header field that no table keeps (RFC 7541 §6.2.2), without Huffman coding."""
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def hello() -> bytes:
    """Return the first frames of either end: a large window, and no table of header fields."""
    settings = struct.pack(">HIHI", 1, 0, 4, WINDOW)
    grow = struct.pack(">I", WINDOW - _DEFAULT_WINDOW)
    return frame(SETTINGS, 0, 0, settings) + frame(WINDOW_UPDATE, 0, 0, grow)


def reply(asked: Frame) -> bytes:
    """Return the answer to settings and pings, if the other end waits for one."""
    if asked.kind not in (SETTINGS, PING) or asked.flags & ACK:
        return b""
    return frame(asked.kind, ACK, 0, asked.payload if asked.kind == PING else b"")


class Window:
    """What the other end may still send, given back before it is used up."""

    def __init__(self) -> None:
        self._received = 0

    def take(self, size: int) -> bytes:
        """Count what was received; return the frame that gives it back, when there is enough."""
        self._received += size
        if self._received <= WINDOW // 4:
            return b""
        grow, self._received = struct.pack(">I", self._received), 0
        return frame(WINDOW_UPDATE, 0, 0, grow)


class Frames:
    """Cuts what is received into frames.

    Args:
        skip: So many bytes come before the first frame.
    """

    def __init__(self, skip: int = 0) -> None:
        self._skip = skip
        self._buffer = b""

    def whole(self, data: bytes) -> Iterator[Frame]:
        """Take the frames that are whole now."""
        data = self._buffer + data
        position = self._skip
        while len(data) - position >= _FRAME.size:
            length_and_kind, flags, stream = _FRAME.unpack_from(data, position)
            end = position + _FRAME.size + (length_and_kind >> 8)
            if end > len(data):
                break
            yield Frame(length_and_kind & 0xFF, flags, stream, data[position + _FRAME.size : end])
            position = end
        self._skip = max(0, position - len(data))
        self._buffer = data[position:]
