"""What the log says of an outage: at its beginning, every few minutes, and at its end, and never at each failed try."""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

_log = structlog.get_logger(__name__)

REMIND_SECONDS = 300.0


class OutageLog:
    """Tells of one thing that a proxy depends on.

    Args:
        name: Of the events: ``postgres`` makes ``postgres.away``, ``postgres.still_away`` and ``postgres.back``.
        waits: What does not happen meanwhile, in words.
        now: The wall clock, in seconds since the epoch.
    """

    def __init__(self, name: str, waits: str, now: Callable[[], float] = time.time) -> None:
        self._name = name
        self._waits = waits
        self._now = now
        self._since: float | None = None
        self._told_at = 0.0

    def failed(self, problem: Exception, works: str) -> None:
        """Note a try that failed; ``works`` says what goes on without."""
        now = self._now()
        is_first = self._since is None
        since = self._since = now if self._since is None else self._since
        if not is_first and now - self._told_at < REMIND_SECONDS:
            return
        self._told_at = now
        _log.warning(
            f"{self._name}.away" if is_first else f"{self._name}.still_away",
            problem=str(problem),
            since=datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds"),
            still_works=works,
            waits=self._waits,
        )

    def succeeded(self) -> None:
        """Note a try that did not fail."""
        since, self._since = self._since, None
        if since is not None:
            _log.info(f"{self._name}.back", away_seconds=round(self._now() - since, 1))
