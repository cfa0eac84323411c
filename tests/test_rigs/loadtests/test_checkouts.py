import os
from pathlib import Path

from loadtests.checkouts import Checkout, Sides
from loadtests.result import ROOT


def a_checkout(folder: Path) -> Checkout:
    package = folder / "src" / "understudy"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return Checkout("before", folder / "src")


def test_both_sides_are_mapped_in_their_places():
    assert Sides("a", "bb").map(len) == Sides(before=1, now=2)


def test_a_checkout_is_imported_before_everything_else(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "tests")

    assert Checkout("before", tmp_path).environment == {"PYTHONPATH": os.pathsep.join([str(tmp_path), "tests"])}


def test_a_process_runs_the_checkout_that_it_is_given(tmp_path):
    assert a_checkout(tmp_path).problem is None
    assert Checkout("now", ROOT / "src").problem is None


def test_a_folder_around_a_checkout_is_none(tmp_path):
    a_checkout(tmp_path)

    problem = Checkout("before", tmp_path).problem

    assert problem is not None
    assert str(tmp_path) in problem
