"""How results look: tables for people, one JSON document for programs, cells of CSV for spreadsheets.

Data goes to standard output, progress and advice to standard error. A table is never cut: on a narrow terminal columns
of low importance are left out, and what is still too long folds.
"""

import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from io import StringIO
from typing import Any, NamedTuple

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from understudy.core.first_names import first_names
from understudy.entrypoints.documents.json_text import json_text

MINUS = "\N{MINUS SIGN}"
_GAP = 2
# Only the rule under the head: four lines of four characters each for rich, of which it uses the third.
_RULE = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


SHOWN = "\N{REPLACEMENT CHARACTER}"
_OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
"""Control characters but for the line's end, those that turn the direction of what follows or end a line, and those
that cannot be seen (zero width, tags), by which two names could look the same."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""What a file of text keeps none of: a terminal that shows the file obeys these. Tabs and ends of lines are text."""
_FORMULA = re.compile(r"[=+\-@\t\r]")
"""How a cell begins that a spreadsheet would calculate. Source: OWASP, "CSV Injection"."""
_NUMBER = re.compile(r"[+-]?[0-9.]+([eE][+-]?[0-9]+)?")
_MAX_NAMES = 8


def with_marks(text: str) -> str:
    """Return a text with a mark in place of each character that is obeyed or not seen, and of none that is read."""
    return text if text.isprintable() else _OBEYED.sub(SHOWN, text)


class Column(NamedTuple):
    """A column of a table. The highest ``drop`` goes first when the terminal is too narrow; 0 always stays."""

    title: str
    drop: int = 0
    right: bool = False


class PlainConsole(Console):
    """Writes no character of a text that a terminal would obey: names come from any caller that may register one."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield what is shown, with a mark in place of each control character."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable() and _OBEYED.search(segment.text):
                yield Segment(_OBEYED.sub(SHOWN, segment.text), segment.style)
            else:
                yield segment


def data_console() -> Console:
    """Return the console of standard output, as wide as :func:`drawn_for` says."""
    return PlainConsole(file=sys.stdout, highlight=False, markup=False, emoji=False, width=_COLUMNS.get())


_COLUMNS: ContextVar[int | None] = ContextVar("_COLUMNS", default=None)


@contextmanager
def drawn_for(columns: int) -> Iterator[None]:
    """Have texts fit another terminal than this process's: one that a caller over HTTP names."""
    before = _COLUMNS.set(columns)
    try:
        yield
    finally:
        _COLUMNS.reset(before)


def terminal_text(texts: Iterable[RenderableType], columns: int) -> str:
    """Return texts as a terminal of so many columns gets them, with its escape sequences for colours."""
    console = PlainConsole(
        file=StringIO(),
        highlight=False,
        markup=False,
        emoji=False,
        width=columns,
        force_terminal=True,
        color_system="standard",
        legacy_windows=False,
        no_color=False,
    )
    with console.capture() as captured:
        for text in texts:
            console.print(text)
    return captured.get()


def advice_console() -> Console:
    """Return the console of standard error."""
    return PlainConsole(file=sys.stderr, highlight=False, markup=False, emoji=False)


def is_interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def show(document: Mapping[str, Any], *texts: RenderableType, as_json: bool) -> None:
    """Print the result: as one line of JSON, or for people."""
    if as_json:
        print_json(document)
        return
    console = data_console()
    for text in texts:
        console.print(text)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as one line of JSON; what a terminal would obey is escaped, which means the same in JSON."""
    sys.stdout.write(_OBEYED.sub(_escaped, json_text(document).decode()) + "\n")
    sys.stdout.flush()


def csv_cell(cell: Any, *, is_shown: bool) -> Any:
    """Return a value as a cell of CSV: with ``'`` before a text that a spreadsheet would take for a formula.

    Args:
        cell: Any value; all but texts stay as they are.
        is_shown: Whether a terminal shows it, which gets a mark in place of each character that it would obey. A file
            gets control characters escaped as in JSON.
    """
    if not isinstance(cell, str):
        return cell
    text = _OBEYED.sub(SHOWN, cell) if is_shown else _CONTROL.sub(_escaped, cell)
    return f"'{text}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else text


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found.group())[1:-1].replace("\x7f", "\\u007f")  # ASCII, so json leaves it as it is


def advise(*lines: str) -> None:
    """Print advice, each line as it is."""
    console = advice_console()
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def a_table(columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], width: int | None = None) -> Table:
    """Return a table that fits ``width`` (by default the terminal's)."""
    width = width or data_console().width
    cells = [tuple(rows_cell) for rows_cell in rows]
    kept = columns_that_fit(columns, cells, width)
    table = Table(
        box=_RULE, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", border_style="dim"
    )
    for index in kept:
        column = columns[index]
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in cells:
        table.add_row(*(row[index] for index in kept))
    return table


def columns_that_fit(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], width: int) -> list[int]:
    """Return the indices of the columns that stay when the least important ones make room for the others."""
    kept = list(range(len(columns)))
    while _needed(columns, rows, kept) > width:
        droppable = [index for index in kept if columns[index].drop > 0]
        if not droppable:
            break
        kept.remove(max(droppable, key=lambda index: columns[index].drop))
    return kept


def table_width(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]]) -> int:
    """Return how wide a table is when no column of it folds."""
    return _needed(columns, rows, range(len(columns)))


def _needed(columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], kept: Collection[int]) -> int:
    widths = (max([_width_of(columns[i].title), *(_width_of(row[i]) for row in rows)]) for i in kept)
    return sum(widths) + _GAP * (len(kept) - 1)


def _width_of(cell: str | Text) -> int:
    text = cell.plain if isinstance(cell, Text) else cell
    return max((cell_len(line) for line in text.splitlines()), default=0)


def facts(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Return names and values side by side; long values fold beside their name."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(f"  {name}", value)
    return grid


def signed_number(value: float, decimals: int) -> str:
    """Return a number with its sign, as tables show a difference: a true minus sign, not a hyphen."""
    return f"{value:+.{decimals}f}".replace("-", MINUS)


def nothing_as(value: object, placeholder: str = "-") -> str:
    """Return the value as text; a dash for ``None`` and for nothing."""
    return placeholder if value is None or value in ("", ()) else str(value)


def names_words(names: Sequence[str]) -> str:
    """Return the first names of a list by commas, and how many more there are."""
    return first_names(names, _MAX_NAMES)
