"""Postgres' CSV becomes Parquet without a change of any value, in bounded pieces."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf, isnan
from pathlib import Path

import pytest
from pyarrow import parquet

from understudy.adapters.archive.parquet_log import SCHEMA, LogFileWriter, inspect
from understudy.errors import ArchiveDiffers
from understudy.ports.prediction_log.log_archive import WrittenFile


def a_line(number: int, *, entity: str = "user", score: str = "0.5", error_code: str = "") -> bytes:
    cells = [
        str(number), "3", "v1", entity, "ab" * 32, '"{""score"": 0.5}"', "12", "2026-08-01 12:00:00.25+00", "", "3",
        score, "12999", "champion", "bucket", "ok", error_code, "42", "7", "", "f", '"[""age""]"',
    ]  # fmt: skip
    return (",".join(cells) + "\n").encode()


def written(folder: Path, lines: Iterable[bytes], **sizes: int) -> list[WrittenFile]:
    writer = LogFileWriter(folder, **sizes)
    complete = [file for line in lines for file in writer.add(line)]
    return complete + writer.end()


def test_values_are_what_postgres_sent(tmp_path):
    (file,) = written(tmp_path, [a_line(7, entity='"a, ""b""\nü"'), a_line(8, error_code='""', score="")])

    first, second = parquet.read_table(file.path).to_pylist()

    assert first == {
        "id": 7, "model_version_id": 3, "version": "v1", "entity_id": 'a, "b"\nü', "input_hash": "ab" * 32,
        "prediction": '{"score": 0.5}', "latency_ms": 12,
        "predicted_at": datetime(2026, 8, 1, 12, 0, 0, 250_000, tzinfo=UTC), "prediction_id": None,
        "assigned_version_id": 3, "score": 0.5, "latency_us": 12_999, "role": "champion", "reason": "bucket",
        "status": "ok", "error_code": None, "bucket": 42, "policy_generation": 7, "rollout_id": None,
        "cache_hit": False, "defaulted": '["age"]',
    }  # fmt: skip
    assert (second["error_code"], second["score"]) == ("", None)


def test_scores_that_are_no_numbers_and_huge_ids_stay(tmp_path):
    (file,) = written(tmp_path, [a_line(2**62, score=score) for score in ("NaN", "Infinity", "-1e-300")])

    scores = parquet.read_table(file.path)["score"].to_pylist()

    assert isnan(scores[0])
    assert scores[1:] == [inf, -1e-300]
    assert file.fingerprint.id_sum == 3 * 2**62


def test_rows_are_cut_into_files_and_groups_and_keep_their_order(tmp_path):
    files = written(tmp_path, [a_line(n) + a_line(n + 1) for n in range(0, 22, 2)], file_rows=8, group_rows=4)

    assert [file.fingerprint.rows for file in files] == [8, 8, 6]
    assert [parquet.ParquetFile(file.path).num_row_groups for file in files] == [2, 2, 2]
    assert [n for file in files for n in parquet.read_table(file.path)["id"].to_pylist()] == list(range(22))


def test_what_is_read_back_is_what_was_written(tmp_path):
    files = written(tmp_path, [a_line(n) for n in range(10)], file_rows=4, group_rows=4)

    assert [inspect(file.path) for file in files] == files


def test_no_rows_are_no_file(tmp_path):
    assert written(tmp_path, []) == []


@pytest.mark.deep
@pytest.mark.parametrize("place", [100, -20])
def test_a_file_with_a_byte_that_turned_is_another_one_or_not_readable(tmp_path, place):
    (file,) = written(tmp_path, [a_line(n) for n in range(500)])
    content = bytearray(file.path.read_bytes())
    content[place] ^= 0x40
    file.path.write_bytes(content)

    with suppress(ArchiveDiffers):
        assert inspect(file.path).sha256 != file.sha256


def test_a_file_with_other_columns_is_refused(tmp_path):
    path = tmp_path / "other.parquet"
    parquet.write_table(SCHEMA.empty_table().drop_columns(["score"]), path)

    with pytest.raises(ArchiveDiffers, match="has the columns id, "):
        inspect(path)
