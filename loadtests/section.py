"""The parts of the benchmark: each has a name, a title, and a function that gives its findings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from loadtests.checkouts import Checkout, Sides
from loadtests.pairs import Compared as Compared
from loadtests.scene import Scene
from loadtests.target import Check as Check
from loadtests.target import Findings as Findings
from loadtests.target import Target as Target


class Effort(NamedTuple):
    """How long to look: ``rounds`` of each contender with so many ``seconds`` of load in each."""

    rounds: int
    seconds: int
    quick: bool = False


@dataclass(frozen=True)
class Section:
    """A part of the benchmark that can be run alone.

    ``compare`` measures two checkouts in pairs. Only processes that the benchmark starts can run another checkout's
    source: what is measured in its own process is ``left_out`` of a comparison, and the text says what that is.
    """

    name: str
    title: str
    run: Callable[[Scene, Effort], Findings]
    compare: Callable[[Scene, Effort, Sides[Checkout]], Compared] | None = None
    left_out: str = ""
