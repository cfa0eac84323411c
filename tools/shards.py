"""Run the test files of some folders in several processes, each with its share of the files.

    python tools/shards.py -m "not slow" tests/unit tests/docs

pytest-xdist collects every test in every worker and sends each result to one process more: a sixth of the processor
time of quick tests. Here each process collects its own files alone. Most files are in one large share for each process,
equal in bytes of source; the others are in small shares, and whichever process is done first takes the next. Tests that
wait, or that take seconds each, want pytest-xdist.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = Path(sys.executable).parent / "pytest"
MAX_PROCESSES = 4
NO_TESTS = 5
"""pytest's exit code where the marks leave no test of a share."""
SECONDS = 900
"""A run of minutes that takes longer hangs."""
SMALL, SMALL_EACH = 5, 2
"""Every fifth file is in a small share, of which there are two for each process: pytest takes two seconds to begin, and
shares that are equal in bytes took 117 and 198 seconds."""


def shares_of(sizes: Mapping[str, int], processes: int) -> list[list[str]]:
    """Divide files so that the sums of their sizes differ little: each, largest first, to the smallest share."""
    shares: list[list[str]] = [[] for _ in range(processes)]
    filled = [0] * processes
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        smallest = filled.index(min(filled))
        shares[smallest].append(path)
        filled[smallest] += sizes[path]
    return [sorted(share) for share in shares if share]


def large_and_small(sizes: Mapping[str, int], processes: int) -> list[list[str]]:
    """Return a large share of the files for each process, and then the small ones."""
    if processes == 1:
        return [sorted(sizes)]
    small = set(sorted(sizes)[::SMALL])
    parts = [{path: sizes[path] for path in sizes if (path in small) is is_small} for is_small in (False, True)]
    return shares_of(parts[0], processes) + shares_of(parts[1], processes * SMALL_EACH)


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, the folders of tests last; return 0 if every share passed."""
    folders = [argument for argument in arguments if (ROOT / argument).is_dir()]
    options = [argument for argument in arguments if argument not in folders]
    found = [path for folder in folders for path in (ROOT / folder).rglob("test_*.py")]
    sizes = {str(path): path.stat().st_size for path in found}
    if not sizes:
        sys.exit(f"no test file in {' '.join(folders) or 'no folder'}")
    # What failed last is kept by one process for all; several would each overwrite what the others had kept.
    command = [str(PYTEST), "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *options]
    processes = min(MAX_PROCESSES, os.cpu_count() or 1)
    first, *others = large_and_small(sizes, processes)
    with tempfile.TemporaryFile("w+") as said, ThreadPoolExecutor(processes) as workers:

        def run(share: Sequence[str]) -> int:
            # What the first one prints is shown at once, as the progress of all.
            prints = None if share is first else said
            return subprocess.run(
                [*command, *share], cwd=ROOT, stdout=prints, stderr=prints and subprocess.STDOUT, check=False,
                timeout=SECONDS,
            ).returncode  # fmt: skip

        codes = list(workers.map(run, [first, *others]))
        said.seek(0)
        sys.stdout.write(said.read())
    return next((code for code in codes if code not in {0, NO_TESTS}), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
