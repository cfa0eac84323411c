"""Examples by the thousand from hypothesis' strategies, before anything is sent: to draw and to send do not mix."""

from typing import TypeVar

import hypothesis
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")
BLOCK = 250
"""Examples of one run of hypothesis, whose own bookkeeping grows with each."""


def draw(strategy: SearchStrategy[T], count: int, seed: int) -> list[T]:
    """Return about so many examples; fewer where a strategy has no more different ones. The same for the same seed."""
    drawn: list[T] = []
    for block in range(-(-count // BLOCK)):
        before = len(drawn)
        _draw_block(strategy, min(BLOCK, count - before), seed * 10_007 + block, drawn)
        if len(drawn) == before:
            break
    return drawn[:count]


def _draw_block(strategy: SearchStrategy[T], count: int, seed: int, drawn: list[T]) -> None:
    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def take(example: T) -> None:
        drawn.append(example)

    take()
