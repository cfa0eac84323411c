"""What a check says."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple


class Finding(NamedTuple):
    """A mistake: where, and what is wrong with it."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class ToolMissing(Exception):
    """A check needs a program that is not here."""

    def __init__(self, name: str, advice: str) -> None:
        super().__init__(f"{name} is not here: {advice}")


class Check(NamedTuple):
    """A check of the files below a folder."""

    name: str
    run: Callable[[Path], Sequence[Finding]]
