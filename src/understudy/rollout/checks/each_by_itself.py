"""What every check does with the open rollouts: one that fails keeps no other from its own look."""

from collections.abc import Iterator
from contextlib import contextmanager

from understudy.errors import LeadershipLost


class EachByItself:
    """Keeps the last failure of several rollouts until all of them were looked at."""

    def __init__(self) -> None:
        self._last: Exception | None = None

    @contextmanager
    def one(self) -> Iterator[None]:
        """Look at one rollout; what it raises is kept.

        Raises:
            LeadershipLost: Another monitor leads, which looks at all of them.
        """
        try:
            yield
        except LeadershipLost:
            raise
        except Exception as problem:  # noqa: BLE001 - a row that a person wrote may fail in any way
            self._last = problem

    def end(self) -> None:
        """Raise the last failure, if there was one."""
        if self._last is not None:
            raise self._last
