"""The in-memory twin of ``ports.ArchiveStore``."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from understudy.core.prediction_log.archive_plan import archive_key


class MemoryArchive:
    """Keeps objects in a dictionary."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    @property
    def location(self) -> str:
        return "file:///in-memory"

    @property
    def local_root(self) -> Path | None:
        return None

    async def put(self, key: str, source: Path) -> None:
        self.objects[archive_key(key)] = source.read_bytes()  # noqa: ASYNC240 - a test's few bytes

    async def fetch(self, key: str, target: Path) -> bool:
        if archive_key(key) not in self.objects:
            return False
        target.write_bytes(self.objects[key])  # noqa: ASYNC240 - a test's few bytes
        return True

    async def delete(self, keys: Iterable[str]) -> None:
        for key in [archive_key(key) for key in keys]:
            self.objects.pop(key, None)

    async def keys(self) -> Sequence[str]:
        return sorted(self.objects)
