"""Run the test files of some folders in several processes, each with its share of the files.

    python tools/shards.py -m "not slow" tests/unit tests/docs

pytest-xdist collects every test in every worker and sends each result to one process more: a sixth of the processor
time of quick tests. Here each process collects its own files alone. Shares are equal in bytes of source, which is
within a tenth of equal in time; nothing moves from one process to another once they run, so tests that wait, or that
take seconds each, want pytest-xdist.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = Path(sys.executable).parent / "pytest"
MAX_PROCESSES = 4
NO_TESTS = 5
"""pytest's exit code where the marks leave no test of a share."""
SECONDS = 900
"""A run of minutes that takes longer hangs."""


def shares_of(sizes: Mapping[str, int], processes: int) -> list[list[str]]:
    """Divide files so that the sums of their sizes differ little: each, largest first, to the smallest share."""
    shares: list[list[str]] = [[] for _ in range(processes)]
    filled = [0] * processes
    for path in sorted(sizes, key=lambda path: (-sizes[path], path)):
        smallest = filled.index(min(filled))
        shares[smallest].append(path)
        filled[smallest] += sizes[path]
    return [sorted(share) for share in shares if share]


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments, the folders of tests last; return 0 if every process did."""
    folders = [argument for argument in arguments if (ROOT / argument).is_dir()]
    options = [argument for argument in arguments if argument not in folders]
    found = [path for folder in folders for path in (ROOT / folder).rglob("test_*.py")]
    sizes = {str(path): path.stat().st_size for path in found}
    if not sizes:
        sys.exit(f"no test file in {' '.join(folders) or 'no folder'}")
    # What failed last is kept by one process for all; several would each overwrite what the others had kept.
    command = [str(PYTEST), "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *options]
    first, *others = shares_of(sizes, min(MAX_PROCESSES, os.cpu_count() or 1))
    with tempfile.TemporaryFile("w+") as said:
        behind = [
            subprocess.Popen([*command, *share], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT) for share in others
        ]
        try:
            # What it prints is the progress of all, since they take equally long.
            codes = [subprocess.run([*command, *first], cwd=ROOT, check=False, timeout=SECONDS).returncode]
            codes += [process.wait(SECONDS) for process in behind]
        finally:
            for process in behind:
                process.kill()
                process.wait()
            said.seek(0)
            sys.stdout.write(said.read())
    return next((code for code in codes if code not in {0, NO_TESTS}), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
