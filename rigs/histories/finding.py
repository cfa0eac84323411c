"""What the checker finds."""

from typing import NamedTuple


class Finding(NamedTuple):
    """A promise that a history breaks.

    Args:
        promise: Which: ``audit``, ``change``, ``answer``, ``order``, ``rollout``, ``exposure``, ``log`` or ``end``.
        text: What was found, for people.
    """

    promise: str
    text: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.text}"
