"""Each test of ``tests/faults`` carries a marker: ``make test-system`` runs by itself what is judged alone."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAULTS = ROOT / "tests" / "faults"
RUN = frozenset(("timed", "alone", "slow"))
"""``make test-system`` leaves out what is slow and judged alone, ``make faults`` runs all of them."""


def unmarked(source: str) -> list[str]:
    """Return the tests of a module that carry none of the markers: by themselves, their class or their module."""
    module = ast.parse(source)
    marks = [node.value for node in module.body if isinstance(node, ast.Assign) and "pytestmark" in _names_of(node)]
    return [] if _is_marked(marks) else list(_unmarked_in(module.body))


def _unmarked_in(body: list[ast.stmt]) -> list[str]:
    found: list[str] = []
    for node in body:
        if isinstance(node, ast.ClassDef) and not _is_marked(node.decorator_list):
            found += _unmarked_in(node.body)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found += [] if _is_marked(node.decorator_list) else [node.name]
    return found


def _names_of(node: ast.Assign) -> list[str]:
    return [target.id for target in node.targets if isinstance(target, ast.Name)]


def _is_marked(marks: list[ast.expr]) -> bool:
    """Whether all of what is marked carries one: a mark within ``parametrize`` is of one case alone."""
    return any(_mark_of(mark) in RUN for given in marks for mark in _all_of(given))


def _all_of(given: ast.expr) -> list[ast.expr]:
    return given.elts if isinstance(given, ast.List | ast.Tuple) else [given]


def _mark_of(mark: ast.expr) -> str:
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else ""


@pytest.mark.parametrize("path", sorted(FAULTS.rglob("test_*.py")), ids=lambda path: path.stem)
def test_each_test_of_the_faults_carries_a_marker_that_has_it_run(path: Path):
    assert unmarked(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("async def test_a(): ...", ["test_a"]),
        ("@pytest.mark.timed\ndef test_a(): ...\ndef test_b(): ...", ["test_b"]),
        ("@pytest.mark.timeout(9)\ndef test_a(): ...", ["test_a"]),
        ("@pytest.mark.parametrize('x', [pytest.param(1, marks=pytest.mark.slow)])\ndef test_a(x): ...", ["test_a"]),
        ("class TestIt:\n    def test_a(self): ...", ["test_a"]),
        ("@pytest.mark.alone\nclass TestIt:\n    def test_a(self): ...", []),
        ("pytestmark = [pytest.mark.timeout(9), pytest.mark.slow]\ndef test_a(): ...", []),
        ("def body_of(): ...", []),
    ],
)
def test_a_test_without_such_a_marker_is_found(source, names):
    assert unmarked(source) == names
