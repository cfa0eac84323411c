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

        used = asyncio.run(ProcessMemory(pid_file).used_bytes())

        assert process.stdin is not None
        process.stdin.close()
    assert used is not None
    assert LARGE < used < 4 * LARGE
    assert asyncio.run(ProcessMemory(pid_file).used_bytes()) is None  # it has ended


async def test_without_a_file_or_a_number_nothing_is_measured(tmp_path: Path):
    (tmp_path / "pid").write_text("soon")

    assert await ProcessMemory(None).used_bytes() is None
    assert await ProcessMemory(tmp_path / "missing").used_bytes() is None
    assert await ProcessMemory(tmp_path / "pid").used_bytes() is None
