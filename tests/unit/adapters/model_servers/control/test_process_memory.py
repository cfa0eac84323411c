"""A process' memory, and that of those that it started."""

import asyncio
import subprocess
import sys
from pathlib import Path

from understudy.adapters.model_servers.control.process_memory import ProcessMemory

KEEPS = "import sys; kept = b'x' * int(sys.argv[1]); print('kept', flush=True); sys.stdin.read()"
STARTS = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[2], sys.argv[1]]); child.wait()"
)
LARGE = 64 * 1_048_576


def test_what_a_process_keeps_counts_and_so_does_what_its_children_keep(tmp_path: Path):
    pid_file = tmp_path / "pid"
    with subprocess.Popen(
        [sys.executable, "-c", STARTS, str(LARGE), KEEPS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        pid_file.write_text(f"{process.pid}\n")

        used = asyncio.run(ProcessMemory(pid_file).use())

        assert process.stdin is not None
        process.stdin.close()
    assert used is not None
    assert LARGE < used.resident_bytes < 4 * LARGE
    assert asyncio.run(ProcessMemory(pid_file).use()) is None  # it has ended


async def test_without_a_file_or_a_number_nothing_is_measured(tmp_path: Path):
    (tmp_path / "pid").write_text("soon")

    assert await ProcessMemory(None).use() is None
    assert await ProcessMemory(tmp_path / "missing").use() is None
    assert await ProcessMemory(tmp_path / "pid").use() is None


def test_a_process_that_took_the_number_of_another_one_is_told_from_it(tmp_path: Path):
    """In a container of its own a server has the same number at each start."""
    (tmp_path / "pid").write_text("1")
    place = tmp_path / "proc/1"
    (place / "task/1").mkdir(parents=True)
    (place / "task/1/children").write_text("")
    (place / "statm").write_text("900 100 0 0 0 0 0")
    found = []
    for started in (4711, 4712):
        (place / "stat").write_text(f"1 (a (strange) name) S 0 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 9 0 {started} 0 0")
        found.append(asyncio.run(ProcessMemory(tmp_path / "pid", tmp_path / "proc").use()))

    first, second = found
    assert first is not None
    assert second is not None
    assert first.resident_bytes == second.resident_bytes > 0
    assert first.started != second.started
