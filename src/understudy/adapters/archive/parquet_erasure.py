"""``FileEraser``: rewrites a Parquet file of the archive without one entity, a row group at a time."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from understudy.adapters.archive.parquet_log import GROUP_ROWS, OPTIONS, digest_of
from understudy.core.prediction_log.erasure import NO_HASH, erased_name, erased_prediction_id
from understudy.errors import ArchiveDiffers
from understudy.ports.prediction_log.entity_erasure import Erasure, RewrittenFile


class ParquetEraser:
    """Keeps a file's columns, order and row groups as they are."""

    def count(self, path: Path, entity_id: str) -> int:
        rows = 0
        try:
            with parquet.ParquetFile(path, page_checksum_verification=True) as opened:
                for place in range(opened.num_row_groups):
                    names = opened.read_row_group(place, columns=["entity_id"])["entity_id"]
                    rows += pc.sum(pc.equal(names, entity_id)).as_py() or 0
        except (pa.ArrowException, OSError, ValueError, KeyError) as problem:
            raise ArchiveDiffers(f"cannot be read: {problem}") from None
        return rows

    def digest(self, path: Path) -> str:
        return digest_of(path)

    def rewrite(self, path: Path, target: Path, erasure: Erasure, model_name: str) -> RewrittenFile | None:
        rows = self.count(path, erasure.entity_id)
        if not rows:
            return None
        name = erased_name(erasure.salt, model_name)
        gone: list[str] = []
        try:
            with parquet.ParquetFile(path, page_checksum_verification=True) as opened:
                schema = opened.schema_arrow
                with parquet.ParquetWriter(target, schema, **OPTIONS) as writer:
                    for place in range(opened.num_row_groups):
                        group = opened.read_row_group(place)
                        erased = without_entity(group, erasure, name, gone).cast(schema)
                        writer.write_table(erased, row_group_size=GROUP_ROWS)
        except (pa.ArrowException, OSError, ValueError, KeyError) as problem:
            raise ArchiveDiffers(f"cannot be written anew: {problem}") from None
        longer = rows * (len(name) - len(erasure.entity_id.encode()))
        return RewrittenFile(target, target.stat().st_size, digest_of(target), digest_of(path), rows, longer, gone)


def without_entity(group: Any, erasure: Erasure, name: str, gone: list[str]) -> Any:
    """Return a row group in which no row names the entity; adds the prediction ids that it loses to ``gone``."""
    is_named = pc.equal(group["entity_id"], erasure.entity_id)
    known = [
        one if named else None
        for one, named in zip(group["prediction_id"].to_pylist(), is_named.to_pylist(), strict=True)
    ]
    gone += [one for one in known if one is not None]
    anew = pa.array([None if one is None else erased_prediction_id(erasure.salt, one) for one in known], pa.string())
    replaced = {
        "entity_id": pa.scalar(name, pa.string()),
        "input_hash": pa.scalar(NO_HASH, pa.string()),
        "prediction_id": anew,
    }
    for column, value in replaced.items():
        place = group.schema.get_field_index(column)
        group = group.set_column(place, column, pc.if_else(is_named, value, group[column]))
    return group
