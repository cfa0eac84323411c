"""One entity goes out of a file of the archive, and every other value of it stays."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from understudy.adapters.archive.parquet_erasure import ParquetEraser
from understudy.adapters.archive.parquet_log import SCHEMA, inspect
from understudy.core.prediction_log.erasure import NO_HASH, erased_name, erased_prediction_id
from understudy.errors import ArchiveDiffers
from understudy.ports.prediction_log.entity_erasure import Erasure

ENTITY = "Zoë"
AT = datetime(2026, 8, 1, 12, tzinfo=UTC)
IDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(4)]


def an_erasure() -> Erasure:
    return Erasure(7, None, ENTITY, bytes(32), is_resumed=False)


def a_file(folder: Path, entities: list[str], **options: int) -> Path:
    path = folder / "fetched.parquet"
    columns = {
        "entity_id": entities,
        "id": list(range(len(entities))),
        "predicted_at": [AT.replace(minute=number) for number in range(len(entities))],
        "input_hash": ["ab" * 32] * len(entities),
        "prediction_id": [IDS[number] if number != 2 else None for number in range(len(entities))],
        "model_version_id": [3] * len(entities),
        "latency_ms": [12] * len(entities),
    }
    rows = [pa.array(columns.get(field.name, [None] * len(entities)), field.type) for field in SCHEMA]
    parquet.write_table(pa.Table.from_arrays(rows, schema=SCHEMA), path, **options)
    return path


def test_a_row_of_the_entity_keeps_all_but_its_name_its_id_and_its_hash(tmp_path):
    path = a_file(tmp_path, [ENTITY, "Zo", ENTITY, "zoë"], row_group_size=2)
    erasure = an_erasure()

    written = ParquetEraser().rewrite(path, tmp_path / "written.parquet", erasure, "churn")

    was, now = (parquet.read_table(one).to_pylist() for one in (path, tmp_path / "written.parquet"))
    name = erased_name(erasure.salt, "churn")
    ids = [erased_prediction_id(erasure.salt, IDS[0]), None]
    for place, prediction in zip((0, 2), ids, strict=True):
        was[place] |= {"entity_id": name, "input_hash": NO_HASH, "prediction_id": prediction}
    assert now == was
    assert written is not None
    assert (written.rows, written.prediction_ids) == (2, [IDS[0]])
    assert ParquetEraser().count(path, ENTITY) == 2
    before, after = inspect(path), inspect(tmp_path / "written.parquet")
    assert after.fingerprint.entity_bytes - before.fingerprint.entity_bytes == written.longer_bytes
    assert (written.sha256, written.was_sha256, written.size_bytes) == (after.sha256, before.sha256, after.size_bytes)


def test_a_file_without_the_entity_is_not_written(tmp_path):
    path = a_file(tmp_path, ["Zo", "zoë"])

    assert ParquetEraser().rewrite(path, tmp_path / "written.parquet", an_erasure(), "churn") is None
    assert not (tmp_path / "written.parquet").exists()


def test_a_file_that_is_none_is_told(tmp_path):
    path = tmp_path / "fetched.parquet"
    path.write_bytes(b"PAR1 and no more")

    with pytest.raises(ArchiveDiffers, match="cannot be read"):
        ParquetEraser().count(path, ENTITY)
