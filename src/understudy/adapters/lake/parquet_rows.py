"""Spooled rows as Parquet: the lines of ``COPY`` text are read by Arrow's reader, and written by model and hour."""

import shutil
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from understudy.core.prediction_log.copy_lines import texts_of
from understudy.core.prediction_log.erasure import NO_HASH
from understudy.core.prediction_log.lake import LAKE_COLUMNS, NamedFile, Stretch, lake_file_key
from understudy.ports.prediction_log.lake import LateRow, VersionName
from understudy.ports.prediction_log.prediction_log import SpooledBatch

TYPES: Mapping[str, Any] = {
    "text": pa.string(),
    "time": pa.timestamp("us", tz="UTC"),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "bool": pa.bool_(),
}
SCHEMA = pa.schema([
    # By this id, and not by its name, engines find a column of an Iceberg table.
    pa.field(name, TYPES[kind], metadata={"PARQUET:field_id": str(number)})
    for number, (name, kind) in enumerate(LAKE_COLUMNS, 1)
])  # fmt: skip
_NAMES = ("model", "version")
"""Made here: a spooled row has the version's number alone."""
_SPOOLED = pa.schema([field for field in SCHEMA if field.name not in _NAMES])
_TEXTS = [field.name for field in _SPOOLED if field.type == pa.string()]
_CONVERT = csv.ConvertOptions(
    column_types=_SPOOLED,
    include_columns=_SPOOLED.names,
    # A segment names its own columns: one of another release may lack some.
    include_missing_columns=True,
    null_values=["\\N"],
    strings_can_be_null=True,
    true_values=["t"],
    false_values=["f"],
)
# Escapes are taken back afterwards: Arrow's reader would make an N of \N, and a t of \t.
_PARSE = csv.ParseOptions(delimiter="\t", quote_char=False, double_quote=False, escape_char=False)
# Dictionary encoding of distinct values costs time and saves no space.
_DISTINCT = {"prediction_id", "input_hash", "prediction", "score", "latency_us", "predicted_at"}
OPTIONS: Mapping[str, Any] = {
    "compression": "zstd",
    # Half of a file's bytes are ids and hashes, in which level 3 takes longer and finds no more.
    "compression_level": 1,
    "use_dictionary": [name for name in SCHEMA.names if name not in _DISTINCT],
    "version": "2.6",
    "coerce_timestamps": "us",
    "write_page_checksum": True,
}
_BACKSLASH, _N = b"\\N"
_PLAIN = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}


class ParquetRows:
    """Implements ``ports.LakeFiles``.

    Args:
        folder: In which files are written, in a folder of their own: another one of these may still be at work.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / uuid4().hex
        self._tables: list[Any] = []

    def add(self, batch: SpooledBatch) -> int:
        table, left_out = _readable(batch.rows, batch.columns)
        if table is not None:
            self._tables.append(table)
        return left_out

    def version_ids(self) -> Sequence[int]:
        columns = [pc.unique(table["model_version_id"]) for table in self._tables]
        return sorted({value for column in columns for value in column.to_pylist()})

    def write(self, stretch: Stretch, names: Mapping[int, VersionName]) -> tuple[Sequence[tuple[NamedFile, Path]], int]:
        self._folder.mkdir(parents=True)
        rows = pa.concat_tables(self._tables) if self._tables else _SPOOLED.empty_table()
        known, unknown = _named(rows, names)
        written: list[tuple[NamedFile, Path]] = []
        for model, hour, part in _by_model_and_hour(known):
            path = self._folder / f"{len(written)}.parquet"
            # In one piece: where its pages end must not depend on how rows were read. A first try may reach the store
            # after the second one, and the table knows how long the file is.
            _write(part, path)
            key = lake_file_key(model, hour, stretch)
            written.append((NamedFile(key, part.num_rows, path.stat().st_size), path))
        return written, unknown

    def late(self, path: Path, before: float) -> Sequence[LateRow]:
        # Nearly always there is none, which the times alone tell.
        if not pc.any(_is_before(parquet.read_table(path, columns=["predicted_at"]), before)).as_py():
            return ()
        rows = parquet.read_table(path, columns=["model", "entity_id", "predicted_at", "prediction_id"])
        late = rows.filter(_is_before(rows, before))
        moments = [at / 1e6 for at in late["predicted_at"].cast(pa.int64()).to_pylist()]
        models, entities, ids = (late[name].to_pylist() for name in ("model", "entity_id", "prediction_id"))
        return [LateRow(*row) for row in zip(models, entities, moments, ids, strict=True)]

    def erase(self, file: NamedFile, path: Path, before: float, names: Mapping[int, tuple[str, str]]) -> NamedFile:
        rows = parquet.read_table(path, schema=SCHEMA)
        places = np.flatnonzero(_is_before(rows, before).to_numpy(zero_copy_only=False))
        is_late = np.zeros(rows.num_rows, dtype=bool)
        given: list[tuple[str, str] | None] = [None] * rows.num_rows
        for place, name in names.items():
            is_late[places[place]], given[places[place]] = True, name
        for column, values in (
            ("entity_id", [None if one is None else one[0] for one in given]),
            ("prediction_id", [None if one is None else one[1] for one in given]),
            ("input_hash", [None if one is None else NO_HASH for one in given]),
        ):
            anew = pc.if_else(pa.array(is_late), pa.array(values, pa.string()), rows[column])
            rows = rows.set_column(SCHEMA.get_field_index(column), column, anew)
        _write(rows, path)
        digest = sha256("\n".join(sorted({name for name, _ in names.values()})).encode()).hexdigest()[:8]
        key = f"{file.key.removesuffix('.parquet')}-late{digest}.parquet"
        return NamedFile(key, file.row_count, path.stat().st_size)

    def clear(self) -> None:
        self._tables = []
        shutil.rmtree(self._folder, ignore_errors=True)


def _write(rows: Any, path: Path) -> None:
    # Tables that were put together column by column have lost what the schema says of each.
    parquet.write_table(rows.combine_chunks().cast(SCHEMA), path, **OPTIONS)


def _is_before(rows: Any, before: float) -> Any:
    moments = rows["predicted_at"].cast(pa.int64()).combine_chunks()
    return pc.less(moments, int(before * 1e6))


def _readable(lines: Sequence[bytes], columns: Sequence[str]) -> tuple[Any, int]:
    """Return the rows, and how many are left out because one of their columns cannot be read; found by halving."""
    try:
        return _read(lines, columns), 0
    except pa.ArrowInvalid:
        if len(lines) == 1:
            return None, 1
    middle = len(lines) // 2
    parts = [_readable(half, columns) for half in (lines[:middle], lines[middle:])]
    tables = [table for table, _ in parts if table is not None]
    return (pa.concat_tables(tables) if tables else None), sum(left_out for _, left_out in parts)


def _read(lines: Sequence[bytes], columns: Sequence[str]) -> Any:
    text = b"".join(texts_of(lines))
    rows = csv.read_csv(
        pa.py_buffer(text),
        read_options=csv.ReadOptions(use_threads=False, column_names=list(columns), block_size=len(text) + 1),
        parse_options=_PARSE,
        convert_options=_CONVERT,
    )
    return _unescaped(rows) if _has_escapes(text) else rows


def _has_escapes(text: bytes) -> bool:
    """Whether a backslash stands before anything but an N, which means no value; a line ends with a line feed."""
    letters = np.frombuffer(text, np.uint8)
    return bool((letters[np.flatnonzero(letters == _BACKSLASH) + 1] != _N).any())


def _unescaped(rows: Any) -> Any:
    for name in _TEXTS:
        column = rows[name]
        if pc.any(pc.match_substring(column, "\\")).as_py():
            plain = [None if value is None else _plain(value) for value in column.to_pylist()]
            rows = rows.set_column(rows.schema.get_field_index(name), name, pa.array(plain, pa.string()))
    return rows


def _plain(text: str) -> str:
    # Two backslashes in a row leave an empty piece between them, and what follows it is plain.
    first, *others = text.split("\\")
    following = iter(others)
    plain = (_PLAIN[piece[0]] + piece[1:] if piece else "\\" + next(following, "") for piece in following)
    return first + "".join(plain)


def _named(rows: Any, names: Mapping[int, VersionName]) -> tuple[Any, int]:
    """Return the rows of versions that have names, with them, and how many others there are."""
    ids = pa.array(list(names), pa.int64())
    places = pc.index_in(rows["model_version_id"], value_set=ids)
    for place, name in enumerate(_NAMES):
        values = pa.array([named[place] for named in names.values()], pa.string())
        rows = rows.append_column(name, pc.take(values, places))
    known = rows.filter(pc.is_valid(places)) if places.null_count else rows
    return known.select(SCHEMA.names), rows.num_rows - known.num_rows


def _by_model_and_hour(rows: Any) -> list[tuple[str, str, Any]]:
    # Without its zone, which Arrow would look up for each row; it is UTC.
    hours = pc.floor_temporal(rows["predicted_at"].cast(pa.timestamp("us")), unit="hour")
    parts = []
    for model in pc.unique(rows["model"]).to_pylist():
        of_model = _where(rows, rows["model"], model)
        hours_of_model = _where(hours, rows["model"], model)
        for hour in pc.unique(hours_of_model).to_pylist():
            part = _where(of_model, hours_of_model, pa.scalar(hour, hours.type))
            parts.append((model, f"{hour:%Y-%m-%d-%H}", part))
    return parts


def _where(rows: Any, column: Any, value: Any) -> Any:
    """Return the rows with a value in a column; copied only if there are others, which is rare."""
    is_so = pc.equal(column, value)
    return rows if pc.all(is_so).as_py() else rows.filter(is_so)
