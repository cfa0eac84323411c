"""The thread beside a spool, where it and the appender meet."""

import threading
from collections import deque
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles
from understudy.adapters.disk.spool_folder import create
from understudy.adapters.disk.spool_keeper import SpoolKeeper
from understudy.adapters.disk.spool_reserve import Reserve


class SyncedFiles(DiskFiles):
    """A disk that knows which open files were synced."""

    def __init__(self) -> None:
        self.synced: list[int] = []

    def sync(self, file: int) -> None:
        self.synced.append(file)


class RollsWhenCounted(deque[int]):
    """Retired segments; when they are first counted the appender has just begun another segment."""

    def __init__(self, keeper: SpoolKeeper, old: int, new: int) -> None:
        super().__init__()
        self.keeper, self.old, self.new = keeper, old, new
        self.said = threading.Event()
        self.synced_when_said: list[int] = []
        self.has_rolled = False

    def __len__(self) -> int:
        if not self.has_rolled:
            self.has_rolled = True
            self.append(self.old)
            self.keeper.own.begin(2, self.new)
            self.keeper.segment = self.new
            self.keeper.own.appended_bytes += 100
            self.keeper.sync(self._on_synced)
        return super().__len__()

    def _on_synced(self, _is_synced: bool) -> None:  # noqa: FBT001 - the port's callback
        files = self.keeper._files  # noqa: SLF001 - what was synced until then
        assert isinstance(files, SyncedFiles)
        self.synced_when_said = files.synced.copy()
        self.said.set()


def test_rows_of_a_segment_that_is_begun_while_another_one_is_synced_are_synced_before_it_is_said(tmp_path: Path):
    files = SyncedFiles()
    own = create(tmp_path, files, print)
    keeper = SpoolKeeper(
        tmp_path,
        own,
        files,
        segment_bytes=1_000_000,
        sync_seconds=0.01,
        reserve=Reserve(files, 0),
        on_failure=print,
        end_segment=lambda _size: None,
    )
    old, new = (files.create(own.path(number)) for number in (1, 2))
    own.begin(1, old)
    own.writing = 2
    keeper.segment = old
    rolls = RollsWhenCounted(keeper, old, new)
    keeper.retired = rolls

    keeper.start()
    assert rolls.said.wait(10)
    keeper.stop()
    own.release()

    assert new in rolls.synced_when_said
