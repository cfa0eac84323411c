"""Folders of runs: each goes with its run, and those of killed runs with the next one."""

import tempfile
from pathlib import Path

import pytest

from understudy.adapters.archive.run_folder import run_folder


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_goes_with_its_run(place):
    with run_folder("run-") as folder:
        (folder / "file").write_text("x")
        there = folder.parent == place

    assert there
    assert list(place.iterdir()) == []


def test_a_folder_that_a_killed_run_left_goes_and_that_of_a_run_under_way_stays(place):
    left = place / "run-left"
    left.mkdir()
    (left / "file").write_text("x")
    kept = [place / "run-file", place / "another", place / "run-link"]
    kept[0].write_text("of another program")
    kept[1].mkdir()
    kept[2].symlink_to(kept[1])

    with run_folder("run-") as first, run_folder("run-") as second:
        there = sorted(place.iterdir())

    assert there == sorted([*kept, first, second])
    assert sorted(place.iterdir()) == sorted(kept)
