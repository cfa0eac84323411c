"""Pages as what they tell a reader to do: which block is typed where, and what is to be seen then.

What a reader need not see stands in HTML comments right before a block:

========================  ============================================================================================
``terminal: NAME``        typed in another terminal than ``main``; each keeps its folder and its exported variables
``goes on: TEXT``         its last command does not end; the reader goes on once TEXT is there
``ends with: CODE``       it leaves with this exit code and not with 0
``within: SECONDS``       a reader takes longer than the test: it is repeated until it ends and shows as the page says
``not run: REASON``       it cannot be run here
``shown by: NAME``        an output that appears in that terminal by itself
``varies: KINDS``         what of an output differs each time: the keys of ``KINDS``
``not compared: REASON``  a block that is no output
``Ctrl-C: NAME``          alone, without a block: the reader stops what goes on in that terminal
``browser: ACTION``       alone, without a block: the reader does that in a browser, as ``browser.py`` reads it
========================  ============================================================================================

A block of ``text`` or ``json`` is the output of the ``sh`` block before it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from docs.browser import Action, action_of

MAIN = "main"
MARKS = {
    "sh": {"terminal", "goes on", "ends with", "within", "not run"},
    "text": {"shown by", "varies", "not compared"},
    "json": {"shown by", "varies", "not compared"},
}
ANYTHING = "…"
_MARK = re.compile(r"<!-- ([A-Za-z-]+(?: [a-z]+)*): (.+) -->")
KINDS = {
    # Which check came first, with its figures; it goes on in lines that are indented.
    "reasons": re.compile(r"(?<= %: )(?:error rate|typical latency|slow answers)\b[^\n]*(?:\n {10}[^\n]*)*"),
    "times": re.compile(r"\b\d+ (?:s|min|h|d) ago\b|just now"),
    "bars": re.compile(r"[█░▁▂▃▄▅▆▇]+"),
    "names": re.compile(r"[\w.-]+@[\w.-]+"),
    # Also one that the page cuts short: 01a1…
    "ids": re.compile(
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b|\b[0-9a-f]{4,7}…"
    ),
    "numbers": re.compile("[-+\N{MINUS SIGN}]?\\d(?:[\\d,.]*\\d)?"),
}
"""In the order in which they are looked for: an id holds numbers."""


class BadPage(Exception):
    """A page that cannot be followed; says where and why."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block with the marks before it."""

    line: int
    language: str
    content: str
    marks: Mapping[str, str]


@dataclass(slots=True)
class Type:
    """The reader types a block; ``shown`` are its outputs."""

    block: Block
    shown: list[Block] = field(default_factory=list)

    @property
    def terminal(self) -> str:
        return self.block.marks.get("terminal", MAIN)


@dataclass(frozen=True, slots=True)
class See:
    """The reader waits for an output in another terminal."""

    block: Block

    @property
    def terminal(self) -> str:
        return self.block.marks["shown by"]


@dataclass(frozen=True, slots=True)
class Stop:
    """The reader presses Ctrl-C."""

    terminal: str


@dataclass(frozen=True, slots=True)
class Browse:
    """The reader does something in a browser."""

    line: int
    action: Action


Step = Type | See | Stop | Browse


def steps_of(path: Path) -> list[Step]:
    """Return what a page tells its reader to do.

    Raises:
        BadPage: A mark or a block cannot be understood.
    """
    steps: list[Step] = []
    for found in _found_in(path):
        if isinstance(found, Stop | Browse):
            steps.append(found)
            continue
        unknown = found.marks.keys() - MARKS.get(found.language, set())
        if unknown or found.language not in MARKS:
            raise BadPage(f"{path.name}:{found.line}: a block of {found.language!r} marked {sorted(unknown)}")
        if found.language == "sh":
            steps.append(Type(found))
        elif "shown by" in found.marks:
            steps.append(See(found))
        elif "not compared" not in found.marks:
            typed = next((step for step in reversed(steps) if isinstance(step, Type)), None)
            if typed is None:
                raise BadPage(f"{path.name}:{found.line}: an output, and nothing was typed before it")
            typed.shown.append(found)
    return steps


def _found_in(path: Path) -> Iterator[Block | Stop | Browse]:
    marks: dict[str, str] = {}
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
    for number, line in lines:
        mark = _MARK.fullmatch(line.strip())
        if mark is not None and mark[1] == "Ctrl-C":
            yield Stop(mark[2])
        elif mark is not None and mark[1] == "browser":
            action = action_of(mark[2])
            if action is None:
                raise BadPage(f"{path.name}:{number}: nothing that is done in a browser: {mark[2]}")
            yield Browse(number, action)
        elif mark is not None:
            marks[mark[1]] = mark[2]
        elif line.startswith("```"):
            content = []
            for _, inner in lines:
                if inner.startswith("```"):
                    break
                content.append(inner)
            yield Block(number, line[3:].strip(), "\n".join(content) + "\n", marks)
            marks = {}
        elif line.strip() and marks:
            raise BadPage(f"{path.name}:{number}: marks {sorted(marks)} without a block")


def why_unlike(shown: Block, said: str) -> str | None:
    """Say which line of a shown output is not in what was said; ``None`` when all are, in their order.

    What was said may have more lines. ``…`` stands for anything within a line, and alone for any lines.
    """
    kinds = [kind for kind in KINDS if kind in shown.marks.get("varies", "").split(", ")]
    if shown.language == "json":
        # As the page folds it: a document is one line.
        lines = ["".join(_levelled(shown.content, kinds).split())]
        there = ["".join(_levelled(said, kinds).split())]
    else:
        lines, there = _levelled(shown.content, kinds).splitlines(), _levelled(said, kinds).splitlines()
    place = 0
    for line in map(_folded, lines):
        if line in ("", ANYTHING):
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split(ANYTHING))))
        searched = pattern.search if shown.language == "json" else pattern.fullmatch
        place = next((at for at in range(place, len(there)) if searched(_folded(there[at]))), -1) + 1
        if not place:
            return line
    return None


def _levelled(text: str, kinds: list[str]) -> str:
    for kind in kinds:
        text = KINDS[kind].sub(f"<{kind}>", text)
    return text


def _folded(line: str) -> str:
    return " ".join(line.split())
