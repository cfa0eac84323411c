import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from understudy.adapters.artifacts.case_file import read_case_rows
from understudy.core.loading.cases import MAX_CASE_BYTES, MAX_CASES, CaseRows
from understudy.errors import NotValidated

ROWS = [{"age": 1.5, "expected": 0.25}, {"age": 2.5, "expected": 0.5}]


async def test_an_artifact_without_a_case_file_has_no_cases(tmp_path):
    assert await read_case_rows(tmp_path) is None


def write(folder: Path, suffix: str) -> None:
    path = folder / f"validation_cases.{suffix}"
    if suffix == "parquet":
        parquet.write_table(pa.Table.from_pylist(ROWS), path)
    else:
        path.write_text(json.dumps(ROWS) if suffix == "json" else "\n".join(map(json.dumps, ROWS)) + "\n")


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
async def test_cases_are_rows_of_json_or_parquet(tmp_path, suffix):
    write(tmp_path, suffix)

    assert await read_case_rows(tmp_path) == CaseRows(ROWS)


async def test_cases_are_lines_of_csv_whose_cells_are_texts(tmp_path):
    (tmp_path / "validation_cases.csv").write_text("case_id,age,expected\nold,1.5,0.25\n,2.5,0.5\n")

    found = await read_case_rows(tmp_path)

    rows = [{"case_id": "old", "age": "1.5", "expected": "0.25"}, {"case_id": "", "age": "2.5", "expected": "0.5"}]
    assert found == CaseRows(rows, is_text=True)


async def test_a_mark_of_the_byte_order_is_no_part_of_the_first_column(tmp_path):
    (tmp_path / "validation_cases.csv").write_bytes(b"\xef\xbb\xbfage,expected\r\n1,0.5\r\n")

    assert await read_case_rows(tmp_path) == CaseRows([{"age": "1", "expected": "0.5"}], is_text=True)


async def test_of_two_files_none_is_chosen(tmp_path):
    write(tmp_path, "json")
    write(tmp_path, "parquet")

    with pytest.raises(NotValidated, match=r"validation_cases\.json and validation_cases\.parquet"):
        await read_case_rows(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("json", b"{", "its cases cannot be read"),
        ("json", b'{"age": 1}', "is no list of objects"),
        ("json", b"[1]", "is no list of objects"),
        ("jsonl", b'{"age": 1}\n[', "its cases cannot be read"),
        ("parquet", b"PAR1", "is not a Parquet file"),
        ("csv", b"age,expected\n1,2,3\n", r"validation_cases\.csv, line 2: has more cells than the header"),
        ("csv", b"age,age,expected\n1,2,0\n", "has the column 'age' twice"),
        ("csv", b"name,expected\n\xe9,1\n", r"validation_cases\.csv, line 2: is not UTF-8"),
    ],
)
async def test_a_file_that_is_none_of_cases_is_said_to_be_so(tmp_path, name, content, said):
    (tmp_path / f"validation_cases.{name}").write_bytes(content)

    with pytest.raises(NotValidated, match=said):
        await read_case_rows(tmp_path)


async def test_a_file_that_is_too_large_is_not_read(tmp_path):
    with (tmp_path / "validation_cases.json").open("wb") as writer:
        writer.truncate(MAX_CASE_BYTES + 1)

    with pytest.raises(NotValidated, match="more than 67,108,864 bytes"):
        await read_case_rows(tmp_path)


@pytest.mark.parametrize("suffix", ["json", "jsonl"])
async def test_a_file_of_more_containers_than_cases_have_is_not_parsed(tmp_path, suffix):
    row = f'{{"a":[{",".join(["[]"] * 100_000)}]}}'
    rows = ",".join([row] * 6)
    (tmp_path / f"validation_cases.{suffix}").write_text(f"[{rows}]" if suffix == "json" else "\n".join([row] * 6))

    with pytest.raises(NotValidated, match="has more than 500,000 arrays and objects"):
        await read_case_rows(tmp_path)


async def test_of_lines_no_more_are_read_than_may_be_asked(tmp_path):
    (tmp_path / "validation_cases.jsonl").write_text("{}\n" * (MAX_CASES + 5) + "no JSON\n")

    found = await read_case_rows(tmp_path)

    assert found is not None
    assert len(found.rows) == MAX_CASES + 1
