"""What import-linter is told holds for this source, and each contract finds a breach that is planted."""

import ast
from collections.abc import Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
from importlinter.api import read_configuration
from importlinter.contracts.acyclic_siblings import AcyclicSiblingsContract
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

from tools.import_contracts import VendorAllowList

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "src" / "understudy" / "core"
CONFIGURATION = read_configuration(str(ROOT / "pyproject.toml"))
CONTRACTS: list[dict[str, Any]] = CONFIGURATION["contracts_options"]
SESSION = {**CONFIGURATION["session_options"], "root_packages": ["understudy"]}
TYPES: dict[str, Any] = {
    "acyclic_siblings": AcyclicSiblingsContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
    "layers": LayersContract,
    "vendor_allow_list": VendorAllowList,
}
BREACHES = {
    "Imports only go down": [
        ("core.routing.route", "ports.monitoring.lease"),
        ("serving.upstream.batching", "adapters.disk.spool"),
        ("shipping.log_shipper", "serving.turn"),
        ("background.tasks", "serving.turn"),
        ("client.calls", "core.routing.route"),
    ],
    "core is pure": [("core.routing.route", "time"), ("core.drift.detector", "pandas"), ("errors", "os")],
    "Inside core": [("core.schema.schema", "core.routing.route"), ("core.canary.analysis", "core.experiments.ab")],
    "Inside the proxy": [
        ("entrypoints.proxy.messages.headers", "entrypoints.proxy.api.app"),
        ("entrypoints.proxy.overload.overload", "entrypoints.proxy.server.connection"),
    ],
    "Inside Postgres' adapters": [
        ("adapters.postgres.connections.connection", "adapters.postgres.registry.policy"),
        ("adapters.postgres.monitoring.lease", "adapters.postgres.rollout.rollouts"),
    ],
    "Commands and the demo open no store": [
        ("entrypoints.cli.audit", "adapters.postgres.registry.registry"),
        ("entrypoints.demo.run", "adapters.postgres.registry.registry"),
    ],
    "Nouns of the command line": [
        ("entrypoints.cli.audit", "entrypoints.cli.key"),
        ("entrypoints.cli.shared.rendering", "entrypoints.cli.rollout.text"),
    ],
    "No package and no module is part of a circle": [("core.rollout.plan", "core.rollout.plan_reader")],
    "Vendors live in adapters": [("serving.upstream.batching", "grpc"), ("bootstrap.proxy", "asyncpg")],
}
"""Imports that each contract forbids, by the beginning of its name."""
MAX_PAIRS = 25
"""Pairs of packages inside core of which one imports the other."""
CLOCKS = {"now", "utcnow", "today"}
CALENDARS = {"datetime", "date", "datetime.datetime", "datetime.date"}


@cache
def imports() -> grimp.ImportGraph:
    return grimp.build_graph(
        "understudy", include_external_packages=True, exclude_type_checking_imports=False, cache_dir=None
    )


def is_kept(options: dict[str, Any], *planted: tuple[str, str]) -> bool:
    graph = deepcopy(imports())
    for importer, imported in planted:
        assert importer in graph.modules, f"there is no module {importer}"
        graph.add_import(importer=importer, imported=imported)
    contract = TYPES[options["type"]](name=options["name"], session_options=SESSION, contract_options=options)
    return bool(contract.check(graph, verbose=False).kept)


def full_name(name: str) -> str:
    """Return the name of a module of ours as imports have it; a vendor's is as it is."""
    return f"understudy.{name}" if "." in name or name == "errors" else name


@pytest.mark.parametrize("options", CONTRACTS, ids=lambda options: options["name"])
def test_a_contract_holds_and_finds_each_planted_breach(options):
    (breaches,) = (pairs for name, pairs in BREACHES.items() if options["name"].startswith(name))

    found = [pair for pair in breaches if not is_kept(options, (full_name(pair[0]), full_name(pair[1])))]

    assert is_kept(options)
    assert found == breaches


def test_few_packages_of_core_import_each_other():
    graph = imports()
    packages = {name for name in graph.find_children("understudy.core") if graph.find_children(name)}

    pairs = {
        (importer, imported)
        for importer in packages
        for imported in packages - {importer}
        if graph.direct_import_exists(importer=importer, imported=imported, as_packages=True)
    }

    assert len(pairs) <= MAX_PAIRS, sorted(pairs)


def clocks_in(source: str) -> Iterator[str]:
    """Yield each use of a calendar's clock; arithmetic on dates is none."""
    if not any(f".{clock}" in source for clock in CLOCKS):  # parsing all of core takes a second
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS and ast.unparse(node.value) in CALENDARS:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def test_core_reads_no_clock_of_the_calendar():
    found = {
        path.relative_to(CORE).as_posix(): uses
        for path in CORE.rglob("*.py")
        if (uses := list(clocks_in(path.read_text(encoding="utf-8"))))
    }

    assert found == {}


def test_a_planted_clock_is_found():
    assert list(clocks_in("from datetime import UTC, datetime\nnewest = datetime.now(UTC)")) == ["line 2: datetime.now"]
