"""Rows of the log as Parquet: from Postgres' CSV through Arrow, in bounded pieces, and back again."""

import hashlib
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from understudy.core.prediction_log.archive_plan import Fingerprint, together
from understudy.errors import ArchiveDiffers
from understudy.ports.prediction_log.log_archive import WrittenFile

# Types that every reader supports: Spark has neither unsigned numbers nor Parquet's UUID and JSON, so those are text.
# Times are microseconds in UTC, which Spark and Trino read as instants and not as local times.
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("model_version_id", pa.int64()),
        ("version", pa.string()),
        ("entity_id", pa.string()),
        ("input_hash", pa.string()),
        ("prediction", pa.string()),
        ("latency_ms", pa.int32()),
        ("predicted_at", pa.timestamp("us", tz="UTC")),
        ("prediction_id", pa.string()),
        ("assigned_version_id", pa.int64()),
        ("score", pa.float64()),
        ("latency_us", pa.int64()),
        ("role", pa.string()),
        ("reason", pa.string()),
        ("status", pa.string()),
        ("error_code", pa.string()),
        ("bucket", pa.int16()),
        ("policy_generation", pa.int64()),
        ("rollout_id", pa.int64()),
        ("cache_hit", pa.bool_()),
        ("defaulted", pa.string()),
    ]
)
"""The columns of a file; ``model`` and ``day`` are in its path. ``inputs`` are erased by age, so no file has them, and
``deadline_us`` and ``slices`` only say what windows were built from."""
GROUP_ROWS = 100_000
FILE_ROWS = 10 * GROUP_ROWS
# Dictionary encoding of distinct values costs time and saves no space.
_REPEATING = [
    "model_version_id", "version", "latency_ms", "assigned_version_id", "role", "reason", "status", "error_code",
    "bucket", "policy_generation", "rollout_id", "defaulted",
]  # fmt: skip
OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    "compression_level": 3,
    "use_dictionary": _REPEATING,
    "write_page_checksum": True,
    "version": "2.6",
    "coerce_timestamps": "us",
    "sorting_columns": [
        parquet.SortingColumn(SCHEMA.get_field_index("predicted_at")),
        parquet.SortingColumn(SCHEMA.get_field_index("id")),
    ],
}
_CONVERT = csv.ConvertOptions(
    column_types=SCHEMA,
    null_values=[""],
    strings_can_be_null=True,
    # COPY writes NULL as an empty field, and an empty text as "".
    quoted_strings_can_be_null=False,
    true_values=["t"],
    false_values=["f"],
)


class LogFileWriter:
    """Writes rows, in the order in which they come, into files of at most :data:`FILE_ROWS` rows.

    Holds at most :data:`GROUP_ROWS` rows and the last addition. Every method blocks.

    Args:
        folder: Where files are created; it has no other files with such names.
        file_rows: Rows of a file, at most; a multiple of ``group_rows``.
        group_rows: Rows of a row group.
    """

    def __init__(self, folder: Path, *, file_rows: int = FILE_ROWS, group_rows: int = GROUP_ROWS) -> None:
        self._folder = folder
        self._file_rows = file_rows
        self._group_rows = group_rows
        self._numbers = count()
        self._waiting: list[Any] = []
        self._waiting_rows = 0
        self._writer: Any = None
        self._path = folder
        self._parts: list[Fingerprint] = []

    def add(self, text: bytes | bytearray) -> list[WrittenFile]:
        """Add whole rows in Postgres' CSV, and return the files that are complete."""
        rows = csv.read_csv(
            pa.BufferReader(text),
            # One block: no row may be split, and a prediction may be long.
            read_options=csv.ReadOptions(use_threads=False, column_names=SCHEMA.names, block_size=len(text) + 1),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=_CONVERT,
        )
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        complete = []
        while self._waiting_rows >= self._group_rows:
            complete += self._write(self._group_rows)
        return complete

    def end(self) -> list[WrittenFile]:
        """Write the remaining rows, and return the files that were not returned before."""
        complete = self._write(self._waiting_rows) if self._waiting_rows else []
        return complete + ([self._close()] if self._writer is not None else [])

    def _write(self, rows: int) -> list[WrittenFile]:
        """Write one row group; return the file that it completes."""
        waiting = pa.concat_tables(self._waiting)
        group, rest = waiting.slice(0, rows), waiting.slice(rows)
        self._waiting, self._waiting_rows = [rest], rest.num_rows
        if self._writer is None:
            self._path = self._folder / f"rows-{next(self._numbers)}.parquet"
            self._writer = parquet.ParquetWriter(self._path, SCHEMA, **OPTIONS)
        self._writer.write_table(group, row_group_size=self._group_rows)
        self._parts.append(_fingerprint_of(group))
        return [self._close()] if sum(part.rows for part in self._parts) >= self._file_rows else []

    def _close(self) -> WrittenFile:
        self._writer.close()
        self._writer = None
        parts, self._parts = self._parts, []
        return WrittenFile(self._path, self._path.stat().st_size, digest_of(self._path), together(parts))


def inspect(path: Path) -> WrittenFile:
    """Read every column of a file, a row group at a time.

    Raises:
        ArchiveDiffers: It cannot be read, or has other columns.
    """
    try:
        with parquet.ParquetFile(path, page_checksum_verification=True) as opened:
            if opened.schema_arrow.names != SCHEMA.names:
                raise ArchiveDiffers(f"has the columns {', '.join(opened.schema_arrow.names)}")
            groups = range(opened.num_row_groups)
            whole = together(_fingerprint_of(opened.read_row_group(place, use_threads=False)) for place in groups)
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise ArchiveDiffers(f"cannot be read: {problem}") from None
    return WrittenFile(path, path.stat().st_size, digest_of(path), whole)


def write_empty(path: Path) -> None:
    """Write a file with all columns and no rows."""
    parquet.write_table(SCHEMA.empty_table(), path)


def _fingerprint_of(rows: Any) -> Fingerprint:
    times = pc.min_max(rows["predicted_at"].cast(pa.int64()))
    return Fingerprint(
        rows=rows.num_rows,
        id_sum=_sum(rows["id"]),
        version_sum=_sum(rows["model_version_id"]),
        latency_ms_sum=_sum(rows["latency_ms"]),
        scores=rows.num_rows - rows["score"].null_count,
        prediction_ids=rows.num_rows - rows["prediction_id"].null_count,
        entity_bytes=_sum(pc.binary_length(rows["entity_id"])),
        first_us=times["min"].as_py() or 0,
        last_us=times["max"].as_py() or 0,
    )


def _sum(column: Any) -> int:
    """Return the sum, from halves of 32 bits: Arrow's own sum wraps around at 64 bits."""
    whole = column.cast(pa.int64())
    high, low = pc.shift_right(whole, 32), pc.bit_wise_and(whole, 0xFFFF_FFFF)
    return ((pc.sum(high).as_py() or 0) << 32) + (pc.sum(low).as_py() or 0)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
