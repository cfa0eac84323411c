"""A spool's folder, in which one thread appends while another one ships."""

import os
import threading
from pathlib import Path

from understudy.adapters.disk.files import DiskFiles
from understudy.adapters.disk.spool_folder import SpoolFolder, create


class HeldFiles(DiskFiles):
    """A disk that holds the next sync of a folder until it is let go."""

    def __init__(self) -> None:
        self.holds = False
        self.is_held, self.go = threading.Event(), threading.Event()

    def sync_folder(self, folder: Path) -> None:
        if self.holds:
            self.is_held.set()
            assert self.go.wait(10)
        super().sync_folder(folder)


def open_descriptors(path: Path) -> int:
    """Return by how many descriptors of this process a file is open, also one that was deleted."""
    found = 0
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found += descriptor.readlink().name.startswith(path.name)
        except FileNotFoundError:  # the one that lists the others
            continue
    return found


def begin(folder: SpoolFolder, number: int, files: DiskFiles) -> None:
    segment = files.create(folder.path(number))
    folder.begin(number, segment)
    folder.writing = number + 1
    os.close(segment)


def test_a_segment_that_is_discarded_while_it_is_read_keeps_its_descriptor_until_the_turn_is_over(tmp_path):
    files = HeldFiles()
    folder = create(tmp_path, files, print)
    begin(folder, 7, files)
    files.holds = True
    shipping = threading.Thread(target=folder.read_from, args=(0, 0, 10, 1_000))
    shipping.start()
    assert files.is_held.wait(10)

    folder.discard(7)
    while_read = open_descriptors(folder.path(7))
    files.go.set()
    shipping.join(10)
    begin(folder, 8, files)
    folder.discard(8)
    afterwards = open_descriptors(folder.path(7)), open_descriptors(folder.path(8))
    folder.release()

    assert while_read == 1
    assert afterwards == (0, 0)
