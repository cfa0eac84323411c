"""Frames that are of a connection as a whole: what both ends hold their peer to (RFC 9113, section 6)."""

from collections.abc import Mapping
from typing import NamedTuple

from understudy.adapters.http2.frames import (
    ACK,
    CONTINUATION,
    SETTINGS,
    ConnectionFault,
    ErrorCode,
    number_in,
    settings_in,
)

PING_BYTES = 8
_GOAWAY_BYTES = 8
_WINDOW = 0x7FFF_FFFF


class GoAway(NamedTuple):
    """A peer's word that it ends the connection."""

    last: int
    """The last stream that it takes."""
    code: int
    why: bytes


def require_order(kind: int, flags: int, number: int, *, has_settings: bool, continued: int | None) -> None:
    """Refuse a frame that may not come now.

    Args:
        kind: The frame's.
        flags: The frame's.
        number: The frame's stream.
        has_settings: Whether the peer has told its settings, with which it begins.
        continued: The stream whose header block is not at its end, if there is one.

    Raises:
        ConnectionFault: It may not.
    """
    if not has_settings and (kind != SETTINGS or flags & ACK):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "it does not begin with settings")
    if continued is not None and (kind != CONTINUATION or number != continued):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a header block that is not continued")


def settings_told(flags: int, number: int, payload: bytes) -> Mapping[int, int] | None:
    """Return a peer's settings; ``None``: it acknowledges ours.

    Raises:
        ConnectionFault: The frame is malformed.
    """
    _require_connection(number)
    if not flags & ACK:
        return dict(settings_in(payload))
    if payload:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement with settings")
    return None


def require_ping(number: int, payload: bytes) -> None:
    """Refuse a malformed ping.

    Raises:
        ConnectionFault: It is one.
    """
    _require_connection(number)
    if len(payload) != PING_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a ping of a wrong size")


def window_told(payload: bytes) -> int:
    """Return by how many bytes a window grows.

    Raises:
        ConnectionFault: The frame is malformed.
    """
    return number_in(payload) & _WINDOW


def goaway_told(number: int, payload: bytes) -> GoAway:
    """Return what a peer says as it ends the connection.

    Raises:
        ConnectionFault: The frame is malformed.
    """
    _require_connection(number)
    if len(payload) < _GOAWAY_BYTES:
        raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "a goaway of a wrong size")
    last, code = int.from_bytes(payload[:4]) & _WINDOW, int.from_bytes(payload[4:_GOAWAY_BYTES])
    return GoAway(last, code, payload[_GOAWAY_BYTES:])


def _require_connection(number: int) -> None:
    if number:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a frame of the connection on a stream")
