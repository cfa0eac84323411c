"""Since when a model server has not answered its agent, and how soon it is asked again."""

from collections.abc import Callable
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

AWAY_ROUND_SECONDS: Final = 1.0
"""Pause between two looks at a server that does not answer: it may have been restarted, and come back empty."""
MAX_AWAY_SECONDS: Final = 60.0
"""After so long it is looked at every five seconds, as any server."""


class ServerAbsence:
    """Whether the server ``name`` is away, by the monotonic clock ``now``; one that loads is busy, and not told of."""

    def __init__(self, name: str, now: Callable[[], float]) -> None:
        self._name = name
        self._now = now
        self._since: float | None = None

    def begin(self, problem: str, *, is_loading: bool) -> float | None:
        """Note that the server does not answer, and return in how many seconds it is asked next; ``None``: as ever."""
        if self._since is None:
            self._since = self._now()
            if not is_loading:
                _log.warning("agent.server_away", server=self._name, problem=problem)
        return AWAY_ROUND_SECONDS if self._now() - self._since < MAX_AWAY_SECONDS else None

    def end(self, *, is_loading: bool) -> None:
        """Note that it answers."""
        if self._since is not None and not is_loading:
            _log.info("agent.server_answers", server=self._name)
        self._since = None

    def clear(self) -> None:
        """Forget it."""
        self._since = None
