"""Where results go, and what every one of them says about how it came about."""

import os
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from understudy import __version__

_RESULTS = Path(__file__).with_name("results")


def about() -> dict[str, Any]:
    """Return when and where this runs."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "understudy": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
    }


def write_result(document: Mapping[str, Any], asked: Path | None, prefix: str = "") -> None:
    """Write a result to where it was ``asked`` for, by default to a file of its own."""
    path = asked or _RESULTS / f"{prefix}{document['at'][:19].replace(':', '')}.json"
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    say(f"written to {os.path.relpath(path)}")


def say(text: str) -> None:
    """Tell the person who waits how far it is; the result alone goes to standard output."""
    print(text, file=sys.stderr, flush=True)
