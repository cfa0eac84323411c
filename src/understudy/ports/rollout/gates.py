"""Port of gates over HTTP: the services that a plan has asked before a step."""

from collections.abc import Set as AbstractSet
from typing import Protocol

from understudy.core.alerts.alerts import Delivery


class Gates(Protocol):
    """The gates that this process knows the addresses of."""

    @property
    def names(self) -> AbstractSet[str]:
        """Their names."""

    async def ask(self, name: str, key: str, body: bytes, /) -> Delivery:
        """Ask a gate once, within a deadline, and return what it answered. Never raises.

        Args:
            name: Of the gate; one that is not known gives no answer.
            key: Of the question: the same at each attempt.
            body: The question, as JSON: the same at each attempt.
        """

    async def close(self) -> None:
        """Close the connections."""
