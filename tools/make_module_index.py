"""Writes the list of all modules of ``docs/explanation/architecture.md`` from the first lines of their docstrings."""

import ast
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "understudy"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- modules: made by make module-index -->\n", "<!-- end of modules -->\n"
LEFT_OUT = ("adapters/_proto",)
"""Generated messages."""


def packages(src: Path = SRC) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Yield each package as its path, its docstring and its modules with their docstrings, in the order of paths."""
    for init in sorted(src.rglob("__init__.py"), key=lambda path: path.parent.relative_to(src).parts):
        folder = init.parent
        name = folder.relative_to(src).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        modules = [(path.stem, summary_of(path)) for path in sorted(folder.glob("*.py")) if path != init]
        yield name, summary_of(init), modules


@lru_cache(maxsize=2_000)
def summary_of(path: Path) -> str:
    """Return the first paragraph of a module's docstring as one line."""
    source = path.read_text(encoding="utf-8")
    quotes = '"""'
    if source.startswith(quotes):  # parsing all that is below takes seconds
        source = source[: source.index(quotes, len(quotes)) + len(quotes)]
    docstring = ast.get_docstring(ast.parse(source)) or ""
    return " ".join(docstring.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


def index(src: Path = SRC) -> str:
    """Return the section: a heading a package, a row a module."""
    parts = []
    for name, summary, modules in packages(src):
        if not modules:
            continue
        title = "understudy" if name == "." else f"{name}/"
        rows = "\n".join(f"| `{module}` | {text} |" for module, text in modules)
        parts.append(f"### {title}\n\n{summary}\n\n| module | what it holds |\n|---|---|\n{rows}\n")
    return "\n".join(parts)


def filled(page: str, section: str) -> str:
    """Return the page with the section between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section}\n{END}{after}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), index()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
