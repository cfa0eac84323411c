"""Hostile files of outcomes, read as ``understudy outcomes import`` reads them."""

from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rigs.fuzz.values import mutated
from understudy.adapters.files.outcomes import open_outcome_file
from understudy.adapters.files.refusal import FileRefused
from understudy.core.experiments.outcome_events import OutcomeEvent, event_of_row, read_event

_HEADER = b"event_id,model,entity_id,name,value,occurred_at\n"
_ROW = b'o-%d,pawn,"e,1",bought,1.5,2026-11-20T13:02:11Z\n'
_GOOD = _HEADER + b"".join(_ROW % number for number in range(3))
_COLUMNS = ("event_id", "model", "entity_id", "name", "value", "occurred_at")
_MAX_ROWS = 2_000


class FileCase(NamedTuple):
    """A file's content, and how its name ends."""

    content: bytes
    suffix: str


def file_cases() -> SearchStrategy[FileCase]:
    """Draw CSV files that are almost good, Parquet files with odd columns, damaged ones, and bytes."""
    csv = (
        mutated(_GOOD)
        | st.lists(_cells(), max_size=5).map(lambda rows: _HEADER + b"\n".join(rows))
        | st.binary(max_size=300)
    )
    damaged = _parquet_files().flatmap(lambda whole: st.just(whole) | mutated(whole))
    return csv.map(lambda content: FileCase(content, ".csv")) | damaged.map(
        lambda content: FileCase(content, ".parquet")
    )


def read_file(case: FileCase, folder: Path) -> str | None:
    """Read a file to its end as events; return what should not have happened, if anything did."""
    path = folder / f"outcomes{case.suffix}"
    path.write_bytes(case.content)
    try:
        with open_outcome_file(path) as opened:
            for row in islice(opened.rows(), _MAX_ROWS):
                if row.problem:
                    continue
                found = read_event(event_of_row(row.cells), "")
                if isinstance(found, OutcomeEvent) and not (found.event_id and found.model_name and found.name):
                    return "an event without id, model or name was read"
    except FileRefused as refused:
        return None if str(refused) and refused.next_step else "refused without a reason or a next step"
    except Exception as problem:  # noqa: BLE001 - that is what is looked for
        return f"{case.suffix}: {type(problem).__name__}: {str(problem)[:120]}"
    return None


def _cells() -> SearchStrategy[bytes]:
    cell = st.sampled_from(
        [b"", b'"', b'""', b"x" * 200_000, b"\x00", b"\xff", b"=1+1", b"nan", b"1e999", b"\r", b"'", b"2026-13-40"]
    )
    return st.lists(cell | st.binary(max_size=8), max_size=9).map(b",".join)


@st.composite
def _parquet_files(draw: st.DrawFn) -> bytes:
    rows = draw(st.integers(0, 3))
    names = draw(st.lists(st.sampled_from(_COLUMNS), unique=True, min_size=3)) + draw(
        st.sampled_from([[], ["prediction_id"], ["event_id"], ["x"]])
    )
    arrays = [_array(draw, rows) for _ in names]
    buffer = BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=names), buffer)
    return buffer.getvalue()


def _array(draw: st.DrawFn, rows: int) -> pa.Array:
    kinds = (
        (pa.string(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
        (pa.binary(), st.binary(max_size=5)),
        (pa.float64(), st.floats()),
        (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
        (pa.timestamp("us"), st.integers(-(2**62), 2**62)),
        (pa.timestamp("ns", "UTC"), st.integers(-(2**62), 2**62)),
        (pa.date32(), st.integers(-(2**31), 2**31 - 1)),
        (pa.bool_(), st.booleans()),
        (pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2)),
    )
    kind, values = draw(st.sampled_from(kinds))
    drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    return (
        pa.array(drawn, kind)
        if not pa.types.is_temporal(kind)
        else pa.array(drawn, _width(kind)).cast(kind, safe=False)
    )


def _width(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
