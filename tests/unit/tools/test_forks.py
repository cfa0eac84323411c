"""How collected tests are divided among forked workers, and what pytest then says of them."""

import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.forks import Slices

ROOT = Path(__file__).resolve().parents[3]
TURNS = st.lists(st.integers(0, 3), max_size=60)
"""Which worker asks for its next test."""


def taken_in(slices: Slices, workers: int, turns: list[int]) -> Iterator[tuple[int, int | None]]:
    """Give the worker and the test of each turn; after the last one every worker goes on by itself until it is done."""
    waiting = deque(turn % workers for turn in turns)
    while waiting:
        worker = waiting.popleft()
        yield worker, slices.take(worker)
    for worker in range(workers):
        while (number := slices.take(worker)) is not None:
            yield worker, number


@given(st.integers(0, 40), st.integers(1, 4), TURNS)
def test_each_test_is_taken_once_whichever_worker_is_faster(tests, workers, turns):
    with Slices(tests, workers) as slices:
        taken = [number for _, number in taken_in(slices, workers, turns) if number is not None]

    assert sorted(taken) == list(range(tests))


@given(st.integers(0, 40), st.integers(1, 4), TURNS)
def test_a_worker_takes_next_what_it_was_told_follows(tests, workers, turns):
    told: dict[int, int | None] = {}
    with Slices(tests, workers) as slices:
        for worker, number in taken_in(slices, workers, turns):
            assert told.get(worker, number) == number
            told[worker] = slices.following(worker)


@given(st.integers(4, 40), TURNS)
def test_after_all_was_cleared_no_worker_takes_a_test(tests, turns):
    with Slices(tests, 4) as slices:
        slices.take(0)
        slices.clear()

        assert [slices.take(worker) for worker in range(4)] == [None] * 4


def test_a_worker_without_tests_takes_the_later_half_of_the_longest_slice():
    with Slices(6, 2) as slices:
        first = [slices.take(0) for _ in range(4)]

        assert first == [0, 1, 2, 5]
        assert [slices.take(1) for _ in range(3)] == [3, 4, None]


def run_of(folder: Path, source: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "test_it.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tools.forks", "--forks", "2", "-p", "no:xdist"]
    command += ["-p", "no:schemathesis", "-c", str(ROOT / "pyproject.toml"), "--basetemp", str(folder / "own")]
    command += [*options, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


ALL_KINDS = """
import os
import pytest

@pytest.mark.parametrize("n", range(8))
def test_writes_where_no_other_worker_does(n, tmp_path):
    print("written by", n)
    (tmp_path / "mine").touch(exist_ok=False)
    assert n != 5

@pytest.mark.parametrize("n", range(2))
def test_leaves_its_folder_to_later_ones(n, tmp_path_factory):
    assert tmp_path_factory.getbasetemp().is_dir()

@pytest.mark.parametrize("code", [0, 7])
def test_ends_its_process(code):
    os._exit(code)

def test_is_skipped():
    pytest.skip("not here")

@pytest.mark.xfail
def test_fails_as_expected():
    raise AssertionError
"""


@pytest.mark.deep
def test_what_each_worker_saw_is_reported_once_also_of_one_that_was_killed(tmp_path):
    done = run_of(tmp_path, ALL_KINDS)

    assert done.returncode == 1, done.stdout
    assert "3 failed, 9 passed, 1 skipped, 1 xfailed" in done.stdout
    assert "written by 5" in done.stdout
    assert "the worker that ran this test ended with 7" in done.stdout
    assert "the worker that ran this test ended with 0" in done.stdout


WITH_A_FILE = """
import os
import pytest
from pathlib import Path

HERE = Path(__file__).parent

@pytest.mark.alone
def test_runs_when_no_other_does():
    assert sorted(file.name for file in HERE.glob("*.over")) == ["0.over", "1.over", "2.over"]

@pytest.fixture(scope="module")
def shared():
    yield
    (HERE / f"{os.getpid()}.down").touch()

@pytest.mark.parametrize("n", range(3))
def test_ends(n, shared):
    (HERE / f"{n}.over").touch()
"""


@pytest.mark.deep
def test_what_is_alone_runs_after_all_others_and_each_worker_takes_down_what_it_shared(tmp_path):
    done = run_of(tmp_path, WITH_A_FILE, "-p", "no:randomly")

    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    assert len(list(tmp_path.glob("*.down"))) == 2


LEAKS = """
import pytest

class Leaky:
    def __del__(self):
        raise RuntimeError("nothing reads it")

def test_leaves_what_fails_once_it_is_looked_for():
    one = Leaky()
    one.itself = one
"""


@pytest.mark.deep
@pytest.mark.parametrize(("source", "said"), [(LEAKS, "nothing reads it"), ("def broken(:", "SyntaxError")])
def test_what_fails_outside_of_a_test_fails_the_run_too(tmp_path, source, said):
    done = run_of(tmp_path, source)

    assert done.returncode != 0, done.stdout
    assert said in done.stdout + done.stderr


def test_no_worker_is_begun_where_polars_computed_while_tests_were_collected(tmp_path):
    ran = run_of(tmp_path, "import polars\npolars.DataFrame({'a': [1]}).select('a')\n\ndef test_passes():\n    pass\n")

    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "have it compute within a test" in ran.stderr
