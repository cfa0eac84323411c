"""What a model server said that answers and lets nothing be loaded or dropped, and when it is to be asked again."""

from collections.abc import Callable
from typing import Final

FIRST_PAUSE_SECONDS: Final = 5.0
MAX_PAUSE_SECONDS: Final = 60.0


class ServerRefusal:
    """The refusal of one server, by the monotonic clock ``now``; each that follows doubles the pause."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._pause_seconds = 0.0
        self._asked_again_at = 0.0
        self.words = ""
        """The last one's words; empty: none stands."""

    @property
    def has_pause(self) -> bool:
        """Whether it is too early to ask again."""
        return bool(self.words) and self._now() < self._asked_again_at

    def note(self, words: str) -> None:
        """Take down another refusal."""
        self.words = words
        self._pause_seconds = min(max(2 * self._pause_seconds, FIRST_PAUSE_SECONDS), MAX_PAUSE_SECONDS)
        self._asked_again_at = self._now() + self._pause_seconds

    def clear(self) -> None:
        """Forget it: the server did what it was asked, or is another one now, or nothing is asked of it."""
        self.words = ""
        self._pause_seconds = 0.0
