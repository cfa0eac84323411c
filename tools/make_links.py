"""Writes the addresses of deploy/links.toml into alerts and their tests; --check only says whether they are there.

Usage: python -m tools.make_links [--check]

An address is known by what stands behind it, so whatever stood there before is replaced.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SETTING = Path("deploy/links.toml")
FOLDERS = ("deploy/prometheus/rules", "tests/watch/rules")
_RUNBOOK = re.compile(r"https?://[^\s'\"]+(?=/runbooks/\w+\.md)")
_DASHBOARD = re.compile(r"https?://[^\s'\"]+?(?=/d/understudy-)")
_ADDRESS = re.compile(r"https?://[^\s'\"@?#]+")


class Links(NamedTuple):
    """Addresses without a slash at their ends."""

    docs: str
    grafana: str


def links_of(root: Path = ROOT) -> Links:
    """Return the setting.

    Raises:
        ValueError: An address is missing, or is none; the message names it.
    """
    found = tomllib.loads((root / SETTING).read_text(encoding="utf-8"))
    links = Links(*(str(found.get(name, "")).rstrip("/") for name in Links._fields))
    for name, address in links._asdict().items():
        if not _ADDRESS.fullmatch(address):
            raise ValueError(f"{SETTING}: {name} is no address such as https://docs.shop.example/understudy")
    return links


def with_links(text: str, links: Links) -> str:
    """Return the text of a file of rules with every address as the setting has it."""
    return _DASHBOARD.sub(lambda _: links.grafana, _RUNBOOK.sub(lambda _: links.docs, text))


def outdated(root: Path = ROOT) -> dict[Path, str]:
    """Return the files that are not what would be written, with what would be."""
    links = links_of(root)
    files = {path: path.read_text(encoding="utf-8") for folder in FOLDERS for path in (root / folder).glob("*.yml")}
    return {path: wanted for path, text in sorted(files.items()) if (wanted := with_links(text, links)) != text}


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        found = outdated()
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    if arguments:
        for path in found:
            print(f"{path.relative_to(ROOT)} has other addresses than {SETTING}: make links", file=sys.stderr)
        return 1 if found else 0
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
