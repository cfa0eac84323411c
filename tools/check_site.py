"""Says which links of a built site lead nowhere, and what it would fetch from elsewhere.

Usage: python -m tools.check_site FOLDER
"""

import os
import sys
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

_LOADED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(NamedTuple):
    """What a page has and needs."""

    anchors: frozenset[str]
    links: tuple[str, ...]
    loaded: tuple[str, ...]
    """What a browser fetches for it without being asked."""


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := values.get(name))}
        if tag == "a" and (link := values.get("href")):
            self.links.append(link)
        elif (name := _LOADED.get(tag)) and (source := values.get(name)) and values.get("rel") != "canonical":
            self.loaded.append(source)


def read(path: Path) -> Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return Page(frozenset(reader.anchors), tuple(reader.links), tuple(reader.loaded))


def faults(folder: Path) -> list[str]:
    """Return in words each link and each fetched file that the site does not have itself, in the order of pages."""
    pages = {path.relative_to(folder).as_posix(): read(path) for path in sorted(folder.rglob("*.html"))}
    return [
        fault for name, page in pages.items() if name != "404.html" for fault in _faults_of(name, page, pages, folder)
    ]


def _faults_of(name: str, page: Page, pages: dict[str, Page], folder: Path) -> list[str]:
    found = [f"{name} fetches {source}" for source in page.loaded if urlsplit(source).netloc]
    for link in (*page.links, *page.loaded):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = _beside(name, unquote(parts.path)) if parts.path else name
        if not (folder / target).is_file():
            found.append(f"{name} links to {link}: there is no such page")
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
            found.append(f"{name} links to {link}: that page has no such heading")
    return found


def _beside(name: str, path: str) -> str:
    return Path(os.path.normpath(Path(name).parent / path)).as_posix()


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = faults(Path(arguments[0]))
    print(
        "\n".join(found) if found else "every link of the site leads somewhere, and it fetches nothing from elsewhere"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
