"""Where archived files lie: a folder, or a bucket of S3."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class ArchiveStore(Protocol):
    """Whole objects by their key, such as ``predictionlog/model=churn/day=2026-08-01/part-1-1-00000.parquet``.

    Every method raises ``ArchiveUnavailable`` when the place cannot be used, or not in time. Those that take a key
    raise ``ArchiveDiffers`` for one that leads out of the archive's own folders, before they touch anything: keys come
    from ``LogArchiveFile``, which a login of its own may write.
    """

    @property
    def location(self) -> str:
        """The place as a URL (``file:///…``, ``s3://bucket/prefix``), without credentials."""

    @property
    def local_root(self) -> Path | None:
        """The folder below which objects are files by their keys; ``None`` where they have to be fetched."""

    async def put(self, key: str, source: Path) -> None:
        """Store a file under ``key``, replacing what is there.

        Atomic: no reader sees a part of it, whatever happens meanwhile; once this returns, it outlives a power cut.
        """

    async def fetch(self, key: str, target: Path) -> bool:
        """Copy an object into a file, as it is stored now; ``False`` when there is none."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete objects; those that are not there are no problem."""

    async def keys(self) -> Sequence[str]:
        """Return every key, in order. For tests and for operators of an archive: it lists all of it."""
