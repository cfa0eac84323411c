"""The in-memory twins of what ships rows to a lake: the same fencing, no Postgres, and files of ids alone."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path

from understudy.core.prediction_log.lake import NamedFile, Place, Stretch, lake_file_key
from understudy.core.prediction_log.row import COLUMNS
from understudy.ports.prediction_log.lake import LateRow, VersionName
from understudy.ports.prediction_log.prediction_log import SpooledBatch

HOUR = "2026-11-26-17"
_VERSION, _ID = COLUMNS.index("model_version_id"), COLUMNS.index("prediction_id")


class MemoryLakeLedger:
    """Files and places in dictionaries.

    Args:
        names: Of the versions that are registered.
    """

    def __init__(self, names: Mapping[int, VersionName]) -> None:
        self._names = names
        self.places: dict[str, Place] = {}
        self.files: dict[str, NamedFile | None] = {}
        """By key; ``None``: named, and not stored."""

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def committed(self, spool_id: str) -> Place:
        return self.places.get(spool_id, (0, 0))

    async def names_of(self, version_ids: Sequence[int]) -> Mapping[int, VersionName]:
        return {one: self._names[one] for one in version_ids if one in self._names}

    async def name(self, stretch: Stretch, keys: Sequence[str]) -> float | None:
        del stretch
        for key in keys:
            self.files.setdefault(key, None)
        return None

    async def late_names(self, rows: Sequence[LateRow]) -> Mapping[int, tuple[str, str]]:
        del rows
        return {}

    async def stored(self, stretch: Stretch, files: Sequence[NamedFile]) -> bool:
        if self.places.get(stretch.spool_id, (0, 0)) != stretch.start:
            return False
        self.places[stretch.spool_id] = stretch.end
        self.files.update({file.key: file for file in files})
        return True


class MemoryLakeFiles:
    """Files with the ids of their rows, one a line.

    Args:
        folder: Where they are written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[tuple[int, str]] = []

    def add(self, batch: SpooledBatch) -> int:
        fields = [line.decode().split("\t") for line in batch.rows]
        self._rows += [(int(line[_VERSION]), line[_ID]) for line in fields]
        return 0

    def version_ids(self) -> Sequence[int]:
        return sorted({version_id for version_id, _ in self._rows})

    def write(self, stretch: Stretch, names: Mapping[int, VersionName]) -> tuple[Sequence[tuple[NamedFile, Path]], int]:
        known = [(names[version_id].model, row_id) for version_id, row_id in self._rows if version_id in names]
        made = []
        for place, model in enumerate(sorted({model for model, _ in known})):
            ids = [row_id for of, row_id in known if of == model]
            path = self._folder / f"{place}.txt"
            size = path.write_text("\n".join(ids))
            made.append((NamedFile(lake_file_key(model, HOUR, stretch), len(ids), size), path))
        return made, len(self._rows) - len(known)

    def late(self, path: Path, before: float) -> Sequence[LateRow]:
        del path, before
        return ()

    def erase(self, file: NamedFile, path: Path, before: float, names: Mapping[int, tuple[str, str]]) -> NamedFile:
        del path, before, names
        return file

    def clear(self) -> None:
        self._rows = []
