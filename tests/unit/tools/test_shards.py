"""How test files are divided among processes."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.shards import ROOT, large_and_small, shares_of

SIZES = st.dictionaries(st.text("abc/_", min_size=1, max_size=8), st.integers(0, 50_000), max_size=30)


@given(SIZES, st.integers(1, 4))
def test_each_file_is_in_one_share_and_no_share_is_larger_by_more_than_a_file(sizes, processes):
    shares = shares_of(sizes, processes)

    filled = [sum(sizes[path] for path in share) for share in shares]
    assert sorted(path for share in shares for path in share) == sorted(sizes)
    assert max(filled, default=0) - min(filled, default=0) <= max(sizes.values(), default=0)


@given(SIZES, st.integers(1, 4))
def test_each_file_is_in_one_share_large_or_small(sizes, processes):
    shares = large_and_small(sizes, processes)

    assert sorted(path for share in shares for path in share) == sorted(sizes)
    assert len(shares) <= 3 * processes


@pytest.mark.deep
@pytest.mark.parametrize(("claims", "code"), [(("True", "True"), 0), (("True", "False"), 1), (("False", "True"), 1)])
def test_a_failure_in_any_process_fails_the_run_and_is_printed(tmp_path, claims, code):
    for name, claim in zip("ab", claims, strict=True):
        (tmp_path / f"test_{name}.py").write_text(f"def test_{name}():\n    assert {claim}\n")

    command = [sys.executable, str(ROOT / "tools/shards.py"), "-p", "no:schemathesis", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert run.returncode == code, run.stdout
    assert ("1 failed" in run.stdout) == (code == 1)
    assert ("2 passed" if (os.cpu_count() or 1) == 1 and not code else "1 passed") in run.stdout
