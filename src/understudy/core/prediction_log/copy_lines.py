"""Lines of Postgres' COPY text as they lie in the spool: they are taken apart only when one of them is asked for."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import overload


class CopyLines(Sequence[bytes]):
    """Lines, each with its line feed; thousands of them mostly go on as they came.

    Args:
        texts: Of several lines each. A line feed within a line is escaped.
        count: How many lines there are.
    """

    def __init__(self, texts: Sequence[bytes], count: int) -> None:
        self.texts = texts
        self._count = count

    @cached_property
    def _lines(self) -> list[bytes]:
        lines = [line for text in self.texts for line in text.splitlines(keepends=True)]
        self.texts = lines  # both would take twice the memory
        return lines

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._lines)

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        return self._lines[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._lines == list(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list


def texts_of(lines: Sequence[bytes]) -> Sequence[bytes]:
    """Return lines as texts of one or several each."""
    return lines.texts if isinstance(lines, CopyLines) else lines
