"""Frames of HTTP/2 (RFC 9113, section 4): cut out of what a peer sends, and made for it."""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import TypeAlias

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
PRIORITISED = 0x20
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS = 1, 2, 3
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, MAX_HEADER_LIST_SIZE = 4, 5, 6
DEFAULT_WINDOW = 65_535
DEFAULT_FRAME_BYTES = 16_384
"""The most that a frame to us may carry: no more is asked for."""
MAX_WINDOW = 2**31 - 1
MAX_STREAM = 2**31 - 1
_HEAD = struct.Struct(">IBI")
_HEAD_BYTES = 9
_STREAM = 0x7FFF_FFFF

Frame: TypeAlias = tuple[int, int, int, bytes]
"""Kind, flags, stream, payload."""


class ErrorCode(IntEnum):
    """Why a stream or a connection is ended (RFC 9113, section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


class ConnectionFault(Exception):
    """A peer broke the protocol in a way that ends the connection."""

    def __init__(self, code: ErrorCode, why: str) -> None:
        super().__init__(why)
        self.code = code
        self.why = why


class FrameReader:
    """Cuts what is received into frames; what it keeps is less than one."""

    def __init__(self) -> None:
        self._rest = b""

    def cut(self, data: bytes) -> Iterator[Frame]:
        """Return the frames that are whole now.

        Raises:
            ConnectionFault: A frame is longer than a peer may send.
        """
        if self._rest:
            data, self._rest = self._rest + data, b""
        at, end = 0, len(data)
        while end - at >= _HEAD_BYTES:
            length_and_kind, flags, stream = _HEAD.unpack_from(data, at)
            length = length_and_kind >> 8
            if length > DEFAULT_FRAME_BYTES:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"a frame of {length:,} bytes")
            following = at + _HEAD_BYTES + length
            if following > end:
                break
            yield length_and_kind & 0xFF, flags, stream & _STREAM, data[at + _HEAD_BYTES : following]
            at = following
        self._rest = data[at:]


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview) -> bytes:
    """Return a frame's bytes."""
    return _HEAD.pack(len(payload) << 8 | kind, flags, stream) + payload


def head_frames(stream: int, block: bytes, max_bytes: int, flags: int = 0) -> bytes:
    """Return the frames of a header block: HEADERS with these flags, and CONTINUATION for what it does not hold."""
    if len(block) <= max_bytes:
        return frame(HEADERS, flags | END_HEADERS, stream, block)
    parts = [block[at : at + max_bytes] for at in range(0, len(block), max_bytes)]
    last = len(parts) - 1
    return b"".join(
        frame(CONTINUATION if n else HEADERS, (0 if n else flags) | (END_HEADERS if n == last else 0), stream, part)
        for n, part in enumerate(parts)
    )


def settings_frame(values: dict[int, int]) -> bytes:
    """Return the frame that tells a peer our settings."""
    return frame(SETTINGS, 0, 0, b"".join(struct.pack(">HI", *value) for value in values.items()))


def window_frame(stream: int, size: int) -> bytes:
    """Return the frame that lets a peer send so many bytes more."""
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", size))


def reset_frame(stream: int, code: ErrorCode) -> bytes:
    """Return the frame that ends a stream."""
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def goaway_frame(code: ErrorCode, last: int = 0, why: bytes = b"") -> bytes:
    """Return the frame that ends a connection; of the peer's streams those after the last one were not taken."""
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + why)


def settings_in(payload: bytes) -> Iterator[tuple[int, int]]:
    """Return the settings that a peer tells.

    Raises:
        ConnectionFault: They are cut off.
    """
    if len(payload) % 6:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "settings that are cut off")
    return struct.iter_unpack(">HI", payload)


def number_in(payload: bytes) -> int:
    """Return the one number that a frame carries.

    Raises:
        ConnectionFault: The frame has another size.
    """
    if len(payload) != 4:  # noqa: PLR2004 - 32 bits
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a frame of a wrong size")
    return int.from_bytes(payload)


def unpadded(flags: int, payload: bytes) -> bytes:
    """Return what a DATA or HEADERS frame carries between its padding.

    Raises:
        ConnectionFault: The padding is longer than the frame.
    """
    if not flags & PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
