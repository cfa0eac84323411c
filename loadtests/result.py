"""Where results go, and what every one of them says about how it came about."""

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from understudy import __version__

RESULTS = Path(__file__).with_name("results")
ROOT = Path(__file__).parents[1]
_GIT_SECONDS = 10


def about() -> dict[str, Any]:
    """Return when and where this runs, and what of."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "understudy": __version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "commit": commit(),
        "source": source_digest(),
    }


def commit(source: Path = ROOT / "src") -> str:
    """Return the commit that is checked out, with a ``+`` when the product's code was changed since; else nothing."""
    try:
        head = _git(source, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if _git(source, "status", "--porcelain", "--", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def source_digest(source: Path = ROOT / "src") -> str:
    """Return a digest of the product's code as it lies there: of two results with the same one, both are of it."""
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in path.as_posix():
            digest.update(path.relative_to(source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True).stdout.strip()


def write_result(document: Mapping[str, Any], asked: Path | None, prefix: str = "") -> None:
    """Write a result to where it was ``asked`` for, by default to a file of its own."""
    path = asked or RESULTS / f"{prefix}{document['at'][:19].replace(':', '')}.json"
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")
    say(f"written to {os.path.relpath(path)}")


def say(text: str) -> None:
    """Tell the person who waits how far it is; the result alone goes to standard output."""
    print(text, file=sys.stderr, flush=True)
