"""PNG files in few colours: what pages of the documentation show of screens, in a third of the bytes."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_COLOURS = 256
_TRUE, _TRUE_ALPHA, _PALETTE = 2, 6, 3
_NONE, _LEFT, _ABOVE, _MEAN = 0, 1, 2, 3


def with_palette(png: bytes) -> bytes:
    """Return an image of 8 bits a channel in its 256 most frequent colours, each pixel in the nearest one."""
    pixels = _pixels(png)
    height, width, _ = pixels.shape
    packed = (pixels.astype(np.uint32) * np.array([65_536, 256, 1], np.uint32)).sum(axis=2, dtype=np.uint32)
    colours, places, counts = np.unique(packed, return_inverse=True, return_counts=True)
    kept = colours[np.argsort(counts)[::-1][:_MAX_COLOURS]]
    nearest = _nearest(_channels(colours), _channels(kept))
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = nearest[places.reshape(height, width)]
    header = struct.pack(">IIBBBBB", width, height, 8, _PALETTE, 0, 0, 0)
    palette = _channels(kept).astype(np.uint8).tobytes()
    chunks = [(b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _channels(colours: NDArray[np.uint32]) -> NDArray[np.int64]:
    return np.stack([colours >> 16, (colours >> 8) & 255, colours & 255], axis=1).astype(np.int64)


def _nearest(colours: NDArray[np.int64], kept: NDArray[np.int64]) -> Bytes:
    """Return for each colour the place of the nearest one that is kept."""
    found = np.empty(len(colours), np.uint8)
    for first in range(0, len(colours), 1_000):
        part = colours[first : first + 1_000]
        found[first : first + 1_000] = ((part[:, None] - kept[None]) ** 2).sum(axis=2).argmin(axis=1)
    return found


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pixels(png: bytes) -> Bytes:
    """Return an image's colours, shape (height, width, 3); what it is transparent by is left out.

    Raises:
        ValueError: It is no plain image of 8 bits a channel.
    """
    if not png.startswith(_SIGNATURE):
        raise ValueError("no PNG file")
    at, packed, header = len(_SIGNATURE), b"", b""
    while at < len(png):
        length, kind = struct.unpack_from(">I4s", png, at)
        data = png[at + 8 : at + 8 + length]
        header, packed = (data, packed) if kind == b"IHDR" else (header, packed + data * (kind == b"IDAT"))
        at += 12 + length
    width, height, depth, colours, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or colours not in (_TRUE, _TRUE_ALPHA) or interlaced:
        raise ValueError("only plain images of 8 bits a channel are read")
    channels = 3 if colours == _TRUE else 4
    lines = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, width * channels + 1)
    found = np.zeros((height, width, channels), np.uint8)
    for row in range(height):
        line = lines[row, 1:].reshape(width, channels)
        found[row] = _restored(int(lines[row, 0]), line, found[row - 1] if row else np.zeros_like(line))
    return found[:, :, :3]


def _restored(kind: int, line: Bytes, above: Bytes) -> Bytes:
    """Return a line as it was before each byte was written as the difference to its neighbours."""
    if kind == _NONE:
        return line
    if kind == _LEFT:
        return np.cumsum(line, axis=0, dtype=np.uint64).astype(np.uint8)
    if kind == _ABOVE:
        return line + above
    restore = _restored_by_mean if kind == _MEAN else _restored_by_paeth
    found = restore(line.tobytes(), above.tobytes(), line.shape[1])
    return np.frombuffer(found, np.uint8).reshape(line.shape)


def _restored_by_mean(line: bytes, above: bytes, channels: int) -> bytearray:
    found = bytearray(channels) + line  # a byte of black stands left of the line
    for place, over in enumerate(above):
        found[place + channels] = (found[place + channels] + (found[place] + over) // 2) & 255
    return found[channels:]


def _restored_by_paeth(line: bytes, above: bytes, channels: int) -> bytearray:
    """Byte by byte in plain integers: arrays of three bytes would cost a hundred times as much."""
    found, corners = bytearray(channels) + line, bytes(channels) + above
    for place, over in enumerate(above):
        left, corner = found[place], corners[place]
        guess = left
        if left != over or over != corner:
            to_left, to_above, to_corner = abs(over - corner), abs(left - corner), abs(left + over - 2 * corner)
            if to_left > to_above or to_left > to_corner:
                guess = over if to_above <= to_corner else corner
        found[place + channels] = (found[place + channels] + guess) & 255
    return found[channels:]
