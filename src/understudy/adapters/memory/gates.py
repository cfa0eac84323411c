"""The in-memory twin of gates over HTTP."""

import asyncio
from collections.abc import Mapping

from understudy.core.alerts.alerts import Delivery


class MemoryGates:
    """Answers as told, in order, and then with the last answer again.

    Args:
        answers: Of each gate, one after the other; ``None`` never answers.
    """

    def __init__(self, answers: Mapping[str, list[Delivery | None]]) -> None:
        self._answers = answers
        self.asked: list[tuple[str, str, bytes]] = []
        """Name, key and body of each attempt."""

    @property
    def names(self) -> frozenset[str]:
        """The gates that it knows."""
        return frozenset(self._answers)

    async def ask(self, name: str, key: str, body: bytes) -> Delivery:
        """Return the next answer."""
        self.asked.append((name, key, body))
        script = self._answers.get(name)
        if script is None:
            return Delivery(None, f"there is no gate {name}")
        answer = script.pop(0) if len(script) > 1 else script[0]
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        return answer

    async def close(self) -> None:
        """Do nothing: it has no connections."""
