"""The manifest of an archived month: its files with their rows and digests, stored in the archive beside them."""

from collections.abc import Sequence
from pathlib import Path

import orjson

from understudy.core.prediction_log.archive_plan import Fingerprint, manifest_key
from understudy.ports.prediction_log.archive_store import ArchiveStore
from understudy.ports.prediction_log.log_archive import Archive, ArchivedFile


async def store_manifest(
    store: ArchiveStore, folder: Path, archive: Archive, whole: Fingerprint, files: Sequence[ArchivedFile]
) -> None:
    """Write a month's manifest, in place of the one that is there.

    Args:
        store: The archive.
        folder: On local disk, of this run alone.
        archive: The month.
        whole: Of all its files together.
        files: All of them.
    """
    document = {
        "schema": "understudy/v1",
        "archive": archive.id,
        "partition": archive.partition_name,
        "since": archive.start,
        "until": archive.end,
        "rows": whole.rows,
        "fingerprint": whole.text,
        "files": [file._asdict() for file in files],
    }
    path = folder / "manifest.json"
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    await store.put(manifest_key(archive.partition_name, archive.id), path)
