"""Runs that are made once: what each gave is kept beside a digest of all that it rests on.

The bars take hours in full. With ``UNDERSTUDY_STATS_KEPT=FOLDER`` a run is a line of a file of that folder, which has
the digest of the product's verdicts, the worlds and the bar in its name: an interrupted bar goes on where it was, two
processes share their runs, and a change of any of these sources begins anew.
"""

import json
import os
from collections.abc import Callable
from functools import cache, wraps
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import grimp
import numpy as np
import scipy

P = ParamSpec("P")
T = TypeVar("T")
FOLDER = os.environ.get("UNDERSTUDY_STATS_KEPT")
VERDICTS = ("understudy.core.canary", "understudy.core.statistics", "understudy.core.windows")
WORLDS = tuple(map(Path(__file__).with_name, ("worlds.py", "simulated_rollouts.py", "calm_looks.py")))


def kept(load: Callable[[Any], T]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Keep what a function gives for its arguments, as JSON; ``load`` makes its value of what JSON has."""

    def keeping(run: Callable[P, T]) -> Callable[P, T]:
        @wraps(run)
        def kept_run(*args: P.args, **options: P.kwargs) -> T:
            if FOLDER is None:
                return run(*args, **options)
            place = Path(FOLDER) / f"{run.__name__}-{_digest(Path(run.__code__.co_filename))}.jsonl"
            key = repr((args, sorted(options.items())))
            found = _lines(place)
            if key not in found:
                found[key] = run(*args, **options)
                place.parent.mkdir(parents=True, exist_ok=True)
                with place.open("a") as file:
                    file.write(json.dumps([key, found[key]]) + "\n")
            return load(found[key])

        return kept_run

    return keeping


@cache
def _lines(place: Path) -> dict[str, Any]:
    return dict(map(json.loads, place.read_text().splitlines())) if place.exists() else {}


@cache
def _digest(bar: Path) -> str:
    """Return what changes with any source that a verdict rests on, and with the libraries that compute it."""
    text = sha256(f"{np.__version__} {scipy.__version__}".encode())
    for place in (*sorted(map(_file_of, _modules())), *WORLDS, bar):
        text.update(place.read_bytes())
    return text.hexdigest()[:16]


def _modules() -> set[str]:
    graph = grimp.build_graph("understudy", cache_dir=None)
    verdicts = {module for module in graph.modules if module.startswith(VERDICTS)}
    return verdicts.union(*(graph.find_upstream_modules(module) for module in verdicts))


def _file_of(module: str) -> Path:
    spec = find_spec(module)
    return Path((spec and spec.origin) or module)
