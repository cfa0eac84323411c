"""Files of training data: every row once, null where nothing stands, and a word on what cannot be read."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from understudy.adapters.files.refusal import FileRefused
from understudy.adapters.files.training import open_training_file
from understudy.ports.experiments.outcome_store import FileRow


def rows_of(path: Path, *columns: str) -> list[FileRow]:
    with open_training_file(path) as opened:
        return list(opened.rows(columns))


def a_csv(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_in_a_csv_file_is_null(tmp_path):
    rows = rows_of(a_csv(tmp_path / "t.csv", 'a,b\n1,\n"",x\n'), "a", "b")

    assert [row.cells for row in rows] == [{"a": "1", "b": None}, {"a": None, "b": "x"}]


def test_in_a_parquet_file_empty_text_is_text_and_null_is_null(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": [1, None], "b": ["", None], "c": [[1], [2]]}), path)

    rows = rows_of(path, "a", "b")

    assert [row.cells for row in rows] == [{"a": 1, "b": ""}, {"a": None, "b": None}]
    with open_training_file(path) as opened:
        assert list(opened.columns) == ["a", "b", "c"]


def test_a_row_of_another_width_is_none(tmp_path):
    rows = rows_of(a_csv(tmp_path / "t.csv", "a,b\n1\n1,2,3\n1,2\n"), "a")

    assert [(row.line, row.problem) for row in rows] == [
        (2, "has more or fewer cells than the first line"),
        (3, "has more or fewer cells than the first line"),
        (4, ""),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "t.csv is empty"),
        ("a,b,a\n1,2,3\n", "t.csv has the column 'a' twice"),
        ("x" * 140_000, "t.csv: its first line is not a CSV header"),
    ],
)
def test_a_file_without_usable_columns_is_refused(tmp_path, text, says):
    with pytest.raises(FileRefused, match=says):
        rows_of(a_csv(tmp_path / "t.csv", text), "a")


def test_a_file_that_is_not_there_or_no_parquet_is_refused(tmp_path):
    with pytest.raises(FileRefused, match="cannot be read: No such file"):
        rows_of(tmp_path / "nowhere.csv", "a")
    with pytest.raises(FileRefused, match="is not a Parquet file"):
        rows_of(a_csv(tmp_path / "t.parquet", "a,b\n"), "a")


@pytest.mark.deep
def test_a_parquet_file_whose_pages_are_broken_says_after_which_row(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"a": list(range(50_000))}), path, compression="gzip", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[2_000:6_000] = bytes(4_000)
    path.write_bytes(content)

    with pytest.raises(FileRefused, match="cannot be read after row"):
        rows_of(path, "a")


def test_a_parquet_column_may_be_called_like_a_path(tmp_path):
    path = tmp_path / "t.parquet"
    parquet.write_table(
        pa.table({"a.b": [1, 2], "a": [{"b": 7}, {"b": 8}], "c": pa.array(["x", "y"]).dictionary_encode()}), path
    )

    assert [row.cells["a.b"] for row in rows_of(path, "a.b", "c")] == [1, 2]
    assert [row.cells["c"] for row in rows_of(path, "a.b", "c")] == ["x", "y"]
