"""The memory of one file is used again for the next one."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

FILES = """
import resource, sys
from pathlib import Path
from threading import Thread
from understudy.adapters.lake.arrow_memory import keep_arrow_memory
keep_arrow_memory()
from traffic.spooled_rows import a_row
from understudy.adapters.lake.parquet_rows import ParquetRows
from understudy.core.prediction_log.lake import Stretch
from understudy.core.prediction_log.row_encoding import encode_line
from understudy.ports.prediction_log.lake import VersionName
from understudy.ports.prediction_log.prediction_log import SpooledBatch
lines = [encode_line(a_row(n)) for n in range(20_000)]
def work():
    for _ in range(5):
        files = ParquetRows(Path(sys.argv[1]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for first in range(0, len(lines), 2_000):
            files.add(SpooledBatch("a", 1, 0, 9, lines[first : first + 2_000]))
        files.write(Stretch("lake:a", (1, 0), (1, 9)), {1: VersionName("visits", "1")})
        files.clear()
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = Thread(target=work)
thread.start()
thread.join()
"""
"""Makes files after each other, and prints how many pages of memory each had to take from the system."""


def pages_of_later_files(folder: Path, **environment: str) -> int:
    """Return how many pages the files behind the first two took."""
    done = subprocess.run(
        [sys.executable, "-c", FILES, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(map(int, done.stdout.split()[2:]))


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no allocator that keeps")
def test_a_file_uses_the_memory_of_the_one_before_unless_the_environment_says_otherwise(tmp_path):
    anew = {"JE_ARROW_MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0"}

    assert 4 * pages_of_later_files(tmp_path) < pages_of_later_files(tmp_path, **anew)
