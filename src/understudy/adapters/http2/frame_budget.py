"""How many frames a peer may send that bring no call nearer its end: settings, pings, empty data, and their like."""

from collections.abc import Callable

from understudy.adapters.http2.frames import ConnectionFault, ErrorCode

BURST = 1_000
PER_SECOND = 100.0
PER_ANSWER = 16
MAX_SAVED = 8_192
"""Calls that are late together are answered together, with three frames each for which there is no caller any more."""


class FrameBudget:
    """Bounds the work that a peer may cause for nothing (SETTINGS, PING, RST_STREAM and CONTINUATION floods)."""

    def __init__(self, now: Callable[[], float], per_second: float = PER_SECOND) -> None:
        self._now = now
        self._per_second = per_second
        self._left = float(BURST)
        self._counted_at = now()

    def earn(self) -> None:
        """Count what a peer may answer with some frames: a call that ended, a part of a message that was sent."""
        if self._left < MAX_SAVED:
            self._left += PER_ANSWER

    def spend(self, frames: int = 1) -> None:
        """Count such a frame, or one that costs as much as several.

        Raises:
            ConnectionFault: There were too many of them.
        """
        self._left -= frames
        if self._left < 1:
            now = self._now()
            self._left = min(float(BURST), self._left + (now - self._counted_at) * self._per_second)
            self._counted_at = now
        if self._left < 1:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that bring no call nearer its end")
