"""Asks a database of known vulnerabilities about everything that is installed, built with or shipped.

    python tools/scan.py [ARGUMENTS OF PIP-AUDIT]

Called by ``make scan`` with the Python that has pip-audit. It reads the lock files, so it installs nothing, and what it
says holds for every machine. ``requirements/accepted.toml`` names the vulnerabilities that do not apply here, each with
a reason and a day after which it is asked about again.

Leaves with 0 when nothing is known against any pin, with 1 when something is, with 2 when the list is unusable.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = ROOT / "requirements" / "accepted.toml"
LOCKS = ("run.txt", "demo.txt", "image.txt", "archive.txt", "build.txt", "uv.txt", "dev.txt")
"""Of ``requirements/``. Other model servers, peers and linters run on no machine that serves."""
ID = re.compile(r"(CVE-\d{4}-\d{4,}|GHSA(-[0-9a-z]{4}){3}|PYSEC-\d{4}-\d+)")
MAX_DAYS = 180
SECONDS = 600.0
UNUSABLE = 2


class Accepted(NamedTuple):
    """A known vulnerability that does not apply here."""

    id: str
    until: date
    """The last day on which it is not asked about."""
    why: str


def read_accepted(text: str, today: date) -> list[Accepted]:
    """Return what is accepted.

    Raises:
        ValueError: An entry has no id, no reason, or a day that has passed or is more than :data:`MAX_DAYS` away.
    """
    return [_entry(one, today) for one in tomllib.loads(text).get("accepted", [])]


def _entry(one: dict[str, Any], today: date) -> Accepted:
    name, until, why = (one.get(field) for field in Accepted._fields)
    if not isinstance(name, str) or ID.fullmatch(name) is None:
        raise ValueError(f"expected id to be a CVE, GHSA or PYSEC number, got {name!r}")
    if type(until) is not date or not isinstance(why, str) or not why.strip():
        raise ValueError(f"{name}: expected until = YYYY-MM-DD and why = a reason")
    if not today <= until <= today + timedelta(days=MAX_DAYS):
        raise ValueError(f"{name}: until is {until}; look at it again, and name a day of the next {MAX_DAYS}")
    return Accepted(name, until, why)


def command(accepted: Iterable[Accepted], arguments: Sequence[str] = ()) -> list[str]:
    """Return how pip-audit is called."""
    locks = [flag for name in LOCKS for flag in ("--requirement", f"requirements/{name}")]
    ignored = [flag for one in accepted for flag in ("--ignore-vuln", one.id)]
    fixed = ["--require-hashes", "--disable-pip", "--strict", "--progress-spinner", "off"]
    return [sys.executable, "-m", "pip_audit", *fixed, *locks, *ignored, *arguments]


def main(arguments: Sequence[str]) -> int:
    """Scan, and return the exit status."""
    today = datetime.now(UTC).date()
    try:
        accepted = read_accepted(ACCEPTED.read_text(encoding="utf-8"), today)
    except (OSError, ValueError) as problem:
        sys.stderr.write(f"{ACCEPTED.relative_to(ROOT)}: {problem}\n")
        return UNUSABLE
    for one in accepted:
        sys.stderr.write(f"accepted until {one.until}: {one.id}: {one.why}\n")
    return subprocess.run(command(accepted, arguments), cwd=ROOT, check=False, timeout=SECONDS).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
