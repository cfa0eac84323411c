import fcntl
import os
import time
from pathlib import Path

import pytest
from loopback.server_folder import ABANDONED_SECONDS, is_fit, server_folder


@pytest.fixture
def memory(tmp_path):
    (tmp_path / "memory").mkdir()
    return tmp_path / "memory"


@pytest.fixture
def disk(tmp_path):
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


def a_left_server(memory: Path, age_seconds: float) -> Path:
    lock = memory / "us-pg-left" / "pg" / "owner.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, times=(time.time() - age_seconds,) * 2)
    return lock


def test_a_server_lives_in_memory_and_leaves_nothing_there(memory, disk):
    with server_folder(memory, disk, room_bytes=1) as folder:
        assert folder.parent == memory
        (folder / "pg").mkdir()

    assert list(memory.iterdir()) == []


@pytest.mark.parametrize("missing", ["the folder", "the room"])
def test_a_server_lives_on_the_disk_where_memory_has_no_place_for_it(memory, disk, missing):
    where, room_bytes = (memory / "nowhere", 1) if missing == "the folder" else (memory, 2**62)

    with server_folder(where, disk, room_bytes) as folder:
        assert folder.parent == disk


@pytest.mark.parametrize(("free_blocks", "flags", "fit"), [(10, 0, True), (9, 0, False), (10, os.ST_NOEXEC, False)])
def test_a_file_system_is_fit_with_the_room_and_with_programs_that_may_run(free_blocks, flags, fit):
    found = os.statvfs_result((4096, 4096, 100, free_blocks, free_blocks, 100, 100, 100, flags, 255))

    assert is_fit(found, room_bytes=40_960) is fit


def test_what_a_killed_run_left_long_ago_is_deleted(memory, disk):
    a_left_server(memory, age_seconds=ABANDONED_SECONDS + 60)

    with server_folder(memory, disk, room_bytes=1) as folder:
        assert list(memory.iterdir()) == [folder]


@pytest.mark.parametrize("state", ["in use", "new"])
def test_what_another_run_has_is_left_alone(memory, disk, state):
    lock = a_left_server(memory, age_seconds=60 if state == "new" else ABANDONED_SECONDS + 60)

    with lock.open("a") as held:
        if state == "in use":
            fcntl.flock(held, fcntl.LOCK_EX)
        with server_folder(memory, disk, room_bytes=1):
            pass

    assert lock.exists()
