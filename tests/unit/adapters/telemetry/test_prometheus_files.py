"""What workers counted is on every page once, whether they live, died, or are being added to the dead."""

import fcntl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.mmap_dict import MmapedDict, mmap_key

from understudy.adapters.telemetry.prometheus_files import SharedFiles, merge_exited

CALLS = mmap_key("calls", "calls_total", ["model"], ["visits"], "Calls.")
FASTEST = mmap_key("seconds", "seconds_bucket", ["le"], ["0.1"], "Seconds.")
SLOWEST = mmap_key("seconds", "seconds_bucket", ["le"], ["+Inf"], "Seconds.")
SUM = mmap_key("seconds", "seconds_sum", [], [], "Seconds.")
AGE = mmap_key("age", "age", [], [], "Age.")


def write(folder: Path, name: str, **values: float) -> None:
    keys = {"calls": CALLS, "fastest": FASTEST, "slowest": SLOWEST, "sum": SUM, "age": AGE}
    file: Any = MmapedDict(str(folder / f"{name}.db"))  # type: ignore[no-untyped-call]  # the package has no types
    for key, value in values.items():
        file.write_value(keys[key], value, 0.0)
    file.close()


def a_worker(folder: Path, pid: int, calls: float = 1.0) -> None:
    write(folder, f"counter_{pid}", calls=calls)
    write(folder, f"histogram_{pid}", fastest=calls, slowest=2.0, sum=0.5)
    write(folder, f"gauge_liveall_{pid}", age=float(pid))


def page(folder: Path) -> list[str]:
    registry = CollectorRegistry()
    registry.register(SharedFiles(folder))
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def sums(folder: Path) -> dict[str, float]:
    """Return what is no gauge."""
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in page(folder) if "age" not in line}


def test_what_a_dead_worker_counted_stays_and_what_it_showed_of_itself_goes(tmp_path):
    for pid, calls in [(7, 3.0), (8, 4.0), (9, 5.0)]:
        a_worker(tmp_path, pid, calls)
    before = sums(tmp_path)

    assert merge_exited(tmp_path, 7)
    assert merge_exited(tmp_path, 8)

    assert sums(tmp_path) == before
    assert before['calls_total{model="visits"}'] == 12
    assert before['seconds_bucket{le="0.1"}'] == 12
    assert before['seconds_bucket{le="+Inf"}'] == before["seconds_count"] == 12 + 3 * 2
    assert before["seconds_sum"] == 1.5
    assert [line for line in page(tmp_path) if "age" in line] == ['age{pid="9"} 9.0']


@pytest.mark.deep
def test_however_many_workers_died_there_are_as_few_files(tmp_path):
    for pid in range(100, 300):
        a_worker(tmp_path, pid)
        assert merge_exited(tmp_path, pid)

    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["counter_dead.db", "histogram_dead.db"]
    assert sums(tmp_path)['calls_total{model="visits"}'] == 200


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2**40)), max_size=30))
def test_no_burial_changes_what_was_counted_whoever_counts_and_dies(tmp_path_factory, events):
    folder = tmp_path_factory.mktemp("metrics")
    counted = [0.0]
    for pid, calls in events:
        if calls % 3:
            a_worker(folder, pid, float(calls))  # the number of a process may be given again
        else:
            assert merge_exited(folder, pid)
        counted.append(sums(folder).get('calls_total{model="visits"}', 0.0))

    for (_, calls), before, after in zip(events, counted, counted[1:], strict=False):
        assert calls % 3 or after == before


def test_a_reader_keeps_files_from_being_moved_under_it_and_is_not_waited_for(tmp_path):
    a_worker(tmp_path, 7)
    with (tmp_path / "lock").open("ab") as reading:
        fcntl.flock(reading, fcntl.LOCK_SH)
        assert not merge_exited(tmp_path, 7)
        assert page(tmp_path)

    assert merge_exited(tmp_path, 7)


@pytest.mark.parametrize("content", [b"", b"\0\0", b"\x00\x10\x00\x00\0\0\0\0"])
def test_a_file_that_its_worker_did_not_get_to_make_spoils_no_page_and_is_removed(tmp_path, content):
    a_worker(tmp_path, 7)
    before = sums(tmp_path)
    torn = tmp_path / "counter_8.db"
    torn.write_bytes(content)

    assert sums(tmp_path) == before
    assert merge_exited(tmp_path, 8)
    assert not torn.exists()
    assert sums(tmp_path) == before


def test_a_worker_that_left_no_files_is_buried_at_once(tmp_path):
    assert merge_exited(tmp_path, 7)
    assert page(tmp_path) == []
