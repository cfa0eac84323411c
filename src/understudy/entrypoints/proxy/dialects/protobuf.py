"""Messages of protobuf, parsed within their bounds: of a long one what says whose answer is asked for, and no more."""

from collections.abc import Collection
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from understudy.errors import MalformedBody

INLINE_MESSAGE_BYTES = 32_768
"""Of a message that is parsed on the event loop, in two milliseconds at most."""
MAX_FIELDS = 4_096
"""Of a longer one. Half a million that are empty fit into a MiB, which takes 50 ms to parse and 56 MiB to hold."""
_VARINT, _FIXED64, _SIZED, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MAX_SHIFT = 63
M = TypeVar("M", bound=Message)


def parse(kind: type[M], message: bytes) -> M:
    """Return a message.

    Raises:
        MalformedBody: It is none of this kind.
    """
    try:
        return kind.FromString(message)
    except DecodeError:
        raise _none_of(kind) from None


def parse_head(kind: type[M], message: bytes, fields: Collection[int]) -> M:
    """Return a message with these of its fields alone: the others are passed over unread.

    Args:
        kind: The message's.
        message: All of it.
        fields: The numbers of fields.

    Raises:
        MalformedBody: It is none of this kind, as far as can be told, or has more than :data:`MAX_FIELDS`; or these of
            its fields are longer than :data:`INLINE_MESSAGE_BYTES` together, which are parsed on the event loop.
    """
    kept = []
    at = count = length = 0
    try:
        while at < len(message):
            count += 1
            if count > MAX_FIELDS:
                raise MalformedBody(f"the message is long and has more than {MAX_FIELDS:,} fields")
            begin = at
            tag, at = _varint(message, at)
            at = _end_of(message, at, tag & 7)
            if tag >> 3 in fields:
                length += at - begin
                if length > INLINE_MESSAGE_BYTES:
                    raise MalformedBody(f"what names the model is longer than {INLINE_MESSAGE_BYTES:,} bytes")
                kept.append(message[begin:at])
    except (IndexError, ValueError):
        raise _none_of(kind) from None
    if at > len(message):
        raise _none_of(kind)
    return parse(kind, b"".join(kept))


def _end_of(message: bytes, at: int, wire_type: int) -> int:
    """Return where the value that begins there ends, perhaps beyond the message."""
    if wire_type == _SIZED:
        size, at = _varint(message, at)
        return at + size
    if wire_type == _VARINT:
        return _varint(message, at)[1]
    if wire_type not in _FIXED:  # a group, which none of these messages has
        raise ValueError(wire_type)
    return at + _FIXED[wire_type]


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and where it ends; raises ``IndexError`` at the message's end, ``ValueError`` if it is long."""
    byte = message[at]
    if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
        return byte, at + 1
    value = shift = 0
    while byte & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > _MAX_SHIFT:
            raise ValueError(shift)
        at += 1
        byte = message[at]
    return value | byte << shift, at + 1


def _none_of(kind: type[Message]) -> MalformedBody:
    return MalformedBody(f"the message is no {kind.DESCRIPTOR.name}")
