"""A log with an entity to be erased, and where it still is."""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import asyncpg
from pyarrow import parquet
from traffic.spooled_rows import a_row

from rigs.faults.archive_worker import Moments, Mortal
from understudy.adapters.archive.folder import FolderArchive
from understudy.adapters.archive.parquet_erasure import ParquetEraser
from understudy.adapters.archive.parquet_log import inspect
from understudy.adapters.postgres.prediction_log.entity_erasure import open_erasures
from understudy.adapters.postgres.prediction_log.predictions import PostgresPredictionStore
from understudy.core.prediction_log.archive_plan import together
from understudy.core.prediction_log.row import COLUMNS
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.prediction_log import SpooledBatch, WriteOutcome
from understudy.retention.entity_eraser import EntityEraser, Result
from worlds.archive import Month, few_days, fill, month_ago, versions_of

ENTITY = "customer-42"
NEIGHBOUR = "customer-4"  # a prefix of the other
ROWS = 40
OLD = [month_ago(4), month_ago(3)]
FIGURES = """
    SELECT model_version_id, count(*), count(DISTINCT entity_id), round(sum(score)::numeric, 6),
           count(DISTINCT prediction_id),
           (SELECT count(*) FROM OutcomeEvent), (SELECT sum(value) FROM OutcomeEvent)
    FROM PredictionLog GROUP BY 1 ORDER BY 1
"""
"""What reports count."""
_PLACES = ("PredictionLog", "OutcomeEvent", "EntityErasure", "RegistryAudit", "PolicyAudit")


async def log_of_customers(database: asyncpg.Connection, entity: str = ENTITY) -> list[int]:
    """Fill two old months and this one: each eighth row is the entity's, and its neighbour has as many."""
    ids = await versions_of(database)
    await fill(database, [*OLD, month_ago(0)], ROWS, ids, few_days)
    await database.execute(
        "UPDATE PredictionLog SET entity_id = CASE id % 8 WHEN 0 THEN $1 WHEN 1 THEN $1 ELSE $2 END WHERE id % 8 < 4",
        entity,
        NEIGHBOUR,
    )
    await database.execute("""UPDATE PredictionLog SET inputs = '{"age": 41}' WHERE predicted_at >= $1""", OLD[1].end)
    return ids


async def tell_outcomes(database: asyncpg.Connection, model: str, entity: str = ENTITY) -> None:
    """Have one outcome of the entity, one of its neighbour, and one that names a prediction of the entity alone."""
    prediction = await database.fetchval(
        "SELECT prediction_id FROM PredictionLog JOIN ModelVersion AS v ON v.id = model_version_id"
        " WHERE entity_id = $1 AND model_name = $2 ORDER BY predicted_at LIMIT 1",
        entity,
        model,
    )
    for name, told in ((entity, None), (NEIGHBOUR, None), (None, prediction)):
        await database.execute(
            "INSERT INTO OutcomeEvent (event_id, model_name, entity_id, prediction_id, name, value, occurred_at)"
            " VALUES ($1, $2, $3, $4, 'bought', 1, now() - INTERVAL '1 hour')",
            f"order-of-{name or entity}-{told}",
            model,
            name,
            told,
        )


async def erase(
    url: str,
    stores: Sequence[ArchiveStore] = (),
    *,
    model: str | None = None,
    entity: str = ENTITY,
    moments: Moments | None = None,
    patience_seconds: float = 10,
    alone_seconds: float = 10,
) -> Result:
    """Run the eraser to its end, or to a moment."""
    passing = moments or Moments("never", lambda: None)
    with tempfile.TemporaryDirectory() as folder:
        async with open_erasures(
            url, timeout_seconds=10, patience_seconds=patience_seconds, alone_seconds=alone_seconds
        ) as ledger:
            by_location: Mapping[str, ArchiveStore] = {store.location: Mortal(store, passing) for store in stores}
            eraser = EntityEraser(
                Mortal(ledger, passing),
                ParquetEraser(),
                by_location,
                None,
                folder=Path(folder),
                on_progress=lambda *_: None,
            )
            return await eraser.run(model, entity, "asked by the person")


async def ship(url: str, version_id: int, at: float, entity: str = ENTITY) -> None:
    """Ship a row as a proxy does."""
    row = a_row(7_000_001, version_id=version_id)._replace(predicted_at=at, entity_id=entity, inputs=b'{"age": 41}')
    shipping = PostgresPredictionStore(url, timeout_seconds=20)
    encoded = [encode_line(row)]
    done = await shipping.write(SpooledBatch(str(uuid4()), 1, 0, 9, encoded, COLUMNS))
    await shipping.close()
    assert done.outcome is WriteOutcome.WRITTEN, done


async def places_of(database: asyncpg.Connection, root: Path | None, entity: str = ENTITY) -> list[str]:
    """Return where an entity is: tables of ours, and objects of an archive, by their bytes and by their columns."""
    tables = await database.fetch("SELECT relname FROM pg_class WHERE relname ~ '_archived_' AND relkind = 'r'")
    counts = {
        table: await database.fetchval(
            f"SELECT count(*) FROM {table} AS t WHERE strpos(t::text, $1 || ',') > 0", entity
        )
        for table in [*_PLACES, *(row[0] for row in tables)]
    }
    return sorted(table for table, rows in counts.items() if rows) + ([] if root is None else files_with(root, entity))


async def assert_ledger_is_true(database: asyncpg.Connection, store: FolderArchive) -> None:
    """Compare what the ledger and the manifests say with the files that lie there."""
    rows = await database.fetch(
        "SELECT archive_id, partition_name, fingerprint, key, file.row_count, byte_count, sha256"
        " FROM LogArchiveFile AS file JOIN LogArchive ON archive_id = id ORDER BY key"
    )
    keys = [key for key in await store.keys() if key.endswith(".parquet")]
    assert keys == [row["key"] for row in rows]
    for archive_id in {row["archive_id"] for row in rows}:
        mine = [row for row in rows if row["archive_id"] == archive_id]
        read = [inspect(store.root / row["key"]) for row in mine]
        assert [(one.size_bytes, one.sha256) for one in read] == [(row["byte_count"], row["sha256"]) for row in mine]
        assert together(one.fingerprint for one in read).text == mine[0]["fingerprint"]
        manifest = json.loads(
            (store.root / "manifests" / f"{mine[0]['partition_name']}-{archive_id}.json").read_text(encoding="utf-8")
        )
        assert [file["key"] for file in manifest["files"]] == [row["key"] for row in mine]
        assert manifest["fingerprint"] == mine[0]["fingerprint"]


def files_with(root: Path, entity: str) -> list[str]:
    """Return the files below a folder that name an entity."""
    paths = [path for path in root.rglob("*") if path.is_file()]
    return sorted(path.name for path in paths if entity in _text_of(path))


def _text_of(path: Path) -> str | list[str]:
    if path.suffix == ".parquet":
        names: list[str] = parquet.ParquetFile(path).read(columns=["entity_id"])["entity_id"].to_pylist()
        return names
    return path.read_text(encoding="utf-8")


def long_ago(month: Month = OLD[0]) -> float:
    return month.start.timestamp() + 1_000


def just_now() -> float:
    return time.time()
