"""Writes the pages of the site where the generator takes them: those of docs/, and what they link to elsewhere.

Usage: python -m tools.make_site FOLDER

A page of docs/ may link to any file of the repository, and the site has docs/ alone. So a file that is linked to is
copied below project/, pages with what they link to in turn, and links are written as they lead there.
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = Path("project")
"""Where the site has files that are not below docs/, by their path in the repository."""
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


def place_of(file: Path) -> Path:
    """Return where the site has a file of the repository."""
    return file.relative_to("docs") if file.parts[0] == "docs" else ELSEWHERE / file


def linked_from(file: Path, text: str) -> Iterator[Path]:
    """Yield the files of the repository that a page links to, by their path in it."""
    for part in _CODE.split(text)[::2]:
        for link in _LINK.finditer(part):
            yield _target(file, link[1])


def with_links(file: Path, text: str) -> str:
    """Return a page's text with each link to a file as it leads there on the site."""
    here = place_of(file).parent

    def rewritten(link: re.Match[str]) -> str:
        target = _target(file, link[1])
        if (ROOT / target).is_dir():
            target = target / "README.md"
        return os.path.relpath(place_of(target), here) + (link[2] or "")

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(rewritten, part) for part in parts[::2]]
    return "".join(parts)


def write(folder: Path, root: Path = ROOT) -> list[Path]:
    """Write all pages and files below a folder, which is emptied before; return their places in it."""
    shutil.rmtree(folder, ignore_errors=True)
    waiting = sorted(path.relative_to(root) for path in (root / "docs").rglob("*") if path.is_file())
    known = set(waiting)
    while waiting:
        file = waiting.pop()
        to = folder / place_of(file)
        to.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix != ".md":
            shutil.copyfile(root / file, to)
            continue
        text = (root / file).read_text(encoding="utf-8")
        to.write_text(with_links(file, text), encoding="utf-8")
        new = {target for target in linked_from(file, text) if (root / target).is_file()} - known
        known |= new
        waiting += sorted(new)
    return sorted(map(place_of, known))


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / link))


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    print(f"{len(write(Path(arguments[0])))} files of the site are in {arguments[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
