"""Whose turn it is, among rollouts that one job looks at one after another within a time-out."""

from collections.abc import Collection, Iterator


class Turns:
    """Gives every rollout its turn, however early a tick is cut off: the next one goes on where that one ended."""

    def __init__(self) -> None:
        self._last_id = 0

    def of(self, rollout_ids: Collection[int]) -> Iterator[int]:
        """Yield each id once, from the one after the last that was begun with."""
        for rollout_id in sorted(rollout_ids, key=lambda known: (known <= self._last_id, known)):
            self._last_id = rollout_id
            yield rollout_id
