"""Files of outcome events: every row comes out once with its line, whatever the file holds."""

import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from understudy.adapters.files.outcomes import open_outcome_file
from understudy.adapters.files.refusal import FileRefused
from understudy.core.experiments.outcome_events import OutcomeEvent, event_of_row, read_event
from understudy.ports.experiments.outcome_store import FileRow

HEADER = "event_id,model,entity_id,name,value,occurred_at"
ROW = "{},churn,cust-42,converted,1,2026-11-20T13:02:11Z"


def rows_of(path: Path) -> list[FileRow]:
    with open_outcome_file(path) as opened:
        return list(opened.rows())


def written(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return path


def event_of(row: FileRow) -> object:
    return read_event(event_of_row(row.cells), "")


def test_a_csv_file_gives_each_row_with_its_line(tmp_path):
    path = written(tmp_path / "o.csv", HEADER, ROW.format("e1"), "", ROW.format('"e\n2"'), ROW.format("e3"))

    rows = rows_of(path)

    assert [(row.line, row.cells["event_id"]) for row in rows] == [(2, "e1"), (5, "e\n2"), (6, "e3")]
    assert all(isinstance(event_of(row), OutcomeEvent) for row in rows)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = written(tmp_path / "o.csv", b"\xef\xbb\xbf" + HEADER.encode(), ROW.format("e1"))

    assert rows_of(path)[0].cells["event_id"] == "e1"


def test_a_row_that_is_broken_costs_no_other(tmp_path):
    path = written(
        tmp_path / "o.csv",
        HEADER,
        ROW.format("e1"),
        b"e2,churn,\xff\xfe,converted,1,2026-11-20T13:02:11Z",
        "e3,churn",
        ROW.format("e4") + ",more,cells",
        ROW.format("x" * 140_000),
        ROW.format("e6"),
    )

    rows = rows_of(path)

    usable = [row.line for row in rows if not row.problem and isinstance(event_of(row), OutcomeEvent)]
    assert usable == [2, 5, 7]
    assert [row.line for row in rows] == [2, 3, 4, 5, 6, 7]
    assert "field larger" in rows[4].problem


def test_how_far_a_file_was_read_is_known(tmp_path):
    path = written(tmp_path / "o.csv", HEADER, *(ROW.format(f"e{number}") for number in range(1_000)))

    with open_outcome_file(path) as opened:
        before, rows = opened.position, list(opened.rows())

        assert before < opened.size
        assert opened.position == opened.size == path.stat().st_size
        assert len(rows) == 1_000


@pytest.mark.parametrize(
    ("header", "missing"),
    [("", "event_id, model, name, value, occurred_at, entity_id or prediction_id"), (HEADER[:-12], "occurred_at")],
)
def test_a_file_without_a_column_is_refused_before_its_rows(tmp_path, header, missing):
    with pytest.raises(FileRefused, match=missing) as refused:
        rows_of(written(tmp_path / "o.csv", header, ROW))

    assert "The columns are event_id" in refused.value.next_step


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
def test_a_file_that_is_not_there_is_refused(tmp_path, name):
    with pytest.raises(FileRefused, match="No such file"):
        rows_of(tmp_path / name)


def test_a_parquet_file_means_the_same_as_a_csv_file(tmp_path):
    path = tmp_path / "o.parquet"
    moment = datetime(2026, 11, 20, 13, 2, 11, tzinfo=UTC)
    columns = {
        "event_id": [f"e{number}" for number in range(2_500)],
        "model": ["churn"] * 2_500,
        "entity_id": ["cust-42"] * 2_500,
        "prediction_id": [None] * 2_500,
        "name": ["revenue"] * 2_500,
        "value": [Decimal("12.50")] * 2_500,
        "occurred_at": pa.array([moment] * 2_500, pa.timestamp("us", "UTC")),
        "country": ["BR"] * 2_500,
    }
    parquet.write_table(pa.table(columns), path)

    with open_outcome_file(path) as opened:
        rows = list(opened.rows())

        assert opened.position == opened.size == 2_500
    assert [row.line for row in rows] == list(range(1, 2_501))
    assert event_of(rows[0]) == OutcomeEvent("e0", "churn", "cust-42", None, "revenue", 12.5, moment.timestamp())


def test_a_time_without_a_zone_is_refused_in_parquet_as_everywhere(tmp_path):
    path = tmp_path / "o.parquet"
    naive = datetime(2026, 11, 20, 13, 2, 11)  # noqa: DTZ001  # that is the point
    columns = {
        "event_id": ["e1"], "model": ["churn"], "entity_id": ["a"], "name": ["n"], "value": [1], "occurred_at": [naive]
    }  # fmt: skip
    parquet.write_table(pa.table(columns), path)

    (row,) = rows_of(path)

    assert not isinstance(event_of(row), OutcomeEvent)


def parquet_of(path: Path, **changes: pa.Array) -> Path:
    row = {"event_id": "e1", "model": "churn", "entity_id": "a", "name": "n", "value": 1, "occurred_at": "2026-11-20"}
    parquet.write_table(pa.table({name: pa.array([value]) for name, value in row.items()} | changes), path)
    return path


def test_times_in_nanoseconds_are_read_and_those_of_other_columns_harm_nobody(tmp_path):
    moment = pa.array([1_795_179_731_000_000_123], pa.timestamp("ns", "UTC"))

    (row,) = rows_of(parquet_of(tmp_path / "o.parquet", occurred_at=moment, exported_at=moment))

    assert event_of(row) == OutcomeEvent("e1", "churn", "a", None, "n", 1.0, 1_795_179_731.0)


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**62], pa.timestamp("us", "UTC")),
        pa.array([2**31 - 1], pa.date32()),
        pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers()),
    ],
)
def test_cells_that_no_value_can_be_made_of_are_refused(tmp_path, cells):
    path = parquet_of(tmp_path / "o.parquet", occurred_at=cells)

    with pytest.raises(FileRefused, match="cannot be read after row 0"):
        rows_of(path)


def test_what_is_no_parquet_is_refused(tmp_path):
    with pytest.raises(FileRefused, match="not a Parquet file"):
        rows_of(written(tmp_path / "o.parquet", HEADER))


def test_without_its_library_a_parquet_file_is_refused_with_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from understudy.adapters.files.outcomes import FileRefused, open_outcome_file\n"
        "try: open_outcome_file(Path('o.parquet'))\n"
        "except FileRefused as problem: print(problem, problem.next_step)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert "pyarrow is not installed" in done.stdout
    assert "understudy-serving[files]" in done.stdout
