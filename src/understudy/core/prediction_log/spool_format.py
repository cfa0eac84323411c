"""The format of the write-ahead spool: rows of ``PredictionLog`` on local disk.

A segment is a sequence of frames: ``length`` and ``crc32`` (u32 each, little-endian), then ``length`` bytes of
payload. The first payload is the segment's header; every other one is a line of Postgres' COPY text format, line feed
included, so that shipping a batch is joining bytes.

A payload ends with a line feed and holds no other. Every frame behind a whole one therefore follows a line feed, which
is how a reader resynchronises after damage without any further mark.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
import orjson

from understudy.core.prediction_log.row import COLUMNS, PredictionRow

FORMAT = 1
FRAME_BYTES = 8
MAX_PAYLOAD_BYTES = 4 * 1_048_576
"""Longest payload; a longer ``length`` on disk is damage. A body is at most 1 MiB, and its answer about as long."""

_FRAME = Struct("<II")
_pack_frame = _FRAME.pack
_unpack_frame = _FRAME.unpack_from
_NULL = "\\N"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class SegmentHeader(NamedTuple):
    """The first frame of a segment, which describes the others."""

    format: int
    columns: tuple[str, ...]


class Records(NamedTuple):
    """The rows of a piece of a segment; offsets count from the piece's beginning."""

    payloads: list[bytes]
    ends: list[int]
    """Offset behind each payload's frame."""
    consumed: int
    """Bytes before this offset are in ``payloads`` or ``damaged``; what follows is not (yet) a whole frame."""
    damaged: list[tuple[int, int]]
    """Start and end of each damaged place that was skipped."""


def encode_row(row: PredictionRow) -> bytes:
    """Return the frame of one row (2.1 µs, measured with a frame of 250 bytes: it is on the request path).

    ``latency_ms`` is ``latency_us`` cut to whole milliseconds. What is not Unicode (lone surrogates, invalid UTF-8)
    becomes ``?`` or U+FFFD, because logging must never fail the request.
    """
    (
        prediction_id,
        predicted_at,
        model_version_id,
        assigned_version_id,
        entity_id,
        input_hash,
        prediction,
        score,
        latency_us,
        role,
        reason,
        bucket,
        policy_generation,
        rollout_id,
        cache_hit,
        status,
        error_code,
        defaulted,
        deadline_us,
        slices,
        inputs,
    ) = row
    second, microsecond = divmod(round(predicted_at * 1_000_000), 1_000_000)
    answer = prediction.decode(errors="replace")
    # One search for all four: escaping each separately would cost more than the rest of this function.
    text = f"{prediction_id}{entity_id}{input_hash}{answer}"
    if "\\" in text or "\t" in text or "\n" in text or "\r" in text:
        prediction_id, entity_id, input_hash, answer = map(_escape, (prediction_id, entity_id, input_hash, answer))
    line = "\t".join(
        (
            prediction_id,
            f"{_utc_text(second)}.{microsecond:06d}+00\t{model_version_id}\t{assigned_version_id}",
            entity_id,
            input_hash,
            answer,
            _NULL if score is None else f"{score}",
            f"{latency_us // 1000}\t{latency_us}",
            role,
            reason,
            f"{bucket}\t{policy_generation}",
            _NULL if rollout_id is None else f"{rollout_id}",
            "t" if cache_hit else "f",
            status,
            _NULL if error_code is None else _escape(error_code),
            "\\N\t\\N\t\\N\t\\N\n"
            if inputs is None and slices is None and deadline_us is None and not defaulted
            else _last_columns(defaulted, deadline_us, slices, inputs),
        )
    )
    return _frame(line.encode(errors="replace"))


def encode_header(columns: Sequence[str] = COLUMNS) -> bytes:
    """Return a segment's first frame."""
    return _frame(orjson.dumps({"format": FORMAT, "columns": list(columns)}) + b"\n")


def read_header(segment: bytes) -> tuple[SegmentHeader, int] | None:
    """Return a segment's header and the offset behind it; ``None`` when the first frame is incomplete or no header."""
    end = _frame_end(segment, 0)
    if end is None:
        return None
    try:
        header = orjson.loads(segment[FRAME_BYTES:end])
        return SegmentHeader(int(header["format"]), tuple(map(str, header["columns"]))), end
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None


def read_records(piece: bytes, offset: int = 0, max_rows: int | None = None) -> Records:
    """Return the rows of a piece of a segment from ``offset`` (a frame's start) on, at most ``max_rows`` of them.

    An incomplete frame at the end is left for later. Damage is skipped up to the next whole frame; when none follows,
    reading stops before it, because it may be a frame that is still being written.
    """
    payloads: list[bytes] = []
    ends: list[int] = []
    damaged: list[tuple[int, int]] = []
    size = len(piece)
    position = offset
    while position + FRAME_BYTES < size and (max_rows is None or len(payloads) < max_rows):
        length, checksum = _unpack_frame(piece, position)
        end = position + FRAME_BYTES + length
        payload = piece[position + FRAME_BYTES : end]
        if end <= size and payload[-1:] == b"\n" and crc32(payload, length) == checksum:
            payloads.append(payload)
            ends.append(end)
            position = end
            continue
        next_start = _next_frame(piece, position)
        if next_start is None:
            break
        damaged.append((position, next_start))
        position = next_start
    return Records(payloads, ends, position, damaged)


def is_damage(rest: bytes) -> bool:
    """Whether the last bytes of a final segment are more than an unfinished frame.

    A process killed inside a write leaves the beginning of a frame, a power cut also zeros; neither row was answered.
    """
    if len(rest) <= FRAME_BYTES or not rest.strip(b"\0"):
        return False
    length, _ = _unpack_frame(rest, 0)
    return FRAME_BYTES + length <= len(rest) or b"\n" in rest[FRAME_BYTES:]


def row_starts(rows: Sequence[bytes], end: int) -> list[int]:
    """Return the offset of each row's frame, for rows without a gap of which the last one ends at ``end``."""
    lengths = [FRAME_BYTES + len(row) for row in rows]
    first = end - sum(lengths)
    return list(accumulate(lengths[:-1], initial=first)) if lengths else []


def follows(committed: tuple[int, int], start: tuple[int, int]) -> bool:
    """Whether rows from ``start`` (segment, offset) are the next ones behind ``committed``.

    The beginning of a later segment counts: its reader has seen the end of the one before.
    """
    return start == committed or (start[0] > committed[0] and start[1] == 0)


def _frame(payload: bytes) -> bytes:
    length = len(payload)
    # The length is the checksum's seed: a frame whose length was damaged cannot pass with another payload's checksum.
    return _pack_frame(length, crc32(payload, length)) + payload


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


def _last_columns(
    defaulted: tuple[str, ...], deadline_us: int | None, slices: bytes | None, inputs: bytes | None
) -> str:
    names = _defaulted_text(defaulted) if defaulted else _NULL
    deadline = _NULL if deadline_us is None else deadline_us
    slices_text = _NULL if slices is None else _slices_text(slices)
    inputs_text = _NULL if inputs is None else _escape(inputs.decode(errors="replace"))
    return f"{names}\t{deadline}\t{slices_text}\t{inputs_text}\n"


@lru_cache(maxsize=256)
def _defaulted_text(names: tuple[str, ...]) -> str:
    return _escape(orjson.dumps(names).decode())


@lru_cache(maxsize=1_024)
def _slices_text(slices: bytes) -> str:
    return _escape(slices.decode(errors="replace"))


@lru_cache(maxsize=8)
def _utc_text(second: int) -> str:
    return str(np.datetime64(second, "s"))


def _frame_end(piece: bytes, start: int) -> int | None:
    """Return the end of the whole, undamaged frame at ``start``, or ``None``."""
    if start + FRAME_BYTES >= len(piece):
        return None
    length, checksum = _unpack_frame(piece, start)
    end: int = start + FRAME_BYTES + length
    if length > MAX_PAYLOAD_BYTES or end > len(piece) or piece[end - 1] != ord("\n"):
        return None
    return end if crc32(piece[start + FRAME_BYTES : end], length) == checksum else None


def _next_frame(piece: bytes, damaged: int) -> int | None:
    """Return the first start of a whole frame behind the damaged frame at ``damaged``."""
    # The damaged byte may be the line feed itself: then only the frame's own length leads to the next one.
    claimed: int = damaged + FRAME_BYTES + _unpack_frame(piece, damaged)[0]
    candidate = piece.find(b"\n", damaged) + 1
    while candidate:
        if claimed < candidate:
            if _frame_end(piece, claimed) is not None:
                return claimed
            claimed = len(piece)
        if _frame_end(piece, candidate) is not None:
            return candidate
        candidate = piece.find(b"\n", candidate) + 1
    return None
