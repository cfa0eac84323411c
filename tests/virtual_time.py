"""An event loop whose time jumps to the next timer, so that a minute of waiting takes none and is always the same."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class _JumpingSelector(selectors.SelectSelector):
    """Waits for nothing: what would be waited is added to the clock."""

    seconds = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everything waits, and nothing is due")
        self.seconds += max(0.0, timeout)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """For code that only waits for timers and for itself: no sockets, no threads."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.seconds

    def freeze(self, seconds: float) -> None:
        """Let time pass in which nothing of this loop runs, as in a process that was stopped and continued."""
        self._jumping.seconds += seconds


def run_in_virtual_time(scenario: Coroutine[Any, Any, T]) -> T:
    """Run to the end; the running loop's ``time()`` begins at 0."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(scenario)


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Make a test of a coroutine whose whole time is virtual."""

    @wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        run_in_virtual_time(test(*args, **options))

    return run
