"""Warm-ups through proxies: what they are asked, and what they answer. None opens a port for the other.

Raises ``RegistryUnavailable`` and ``MigrationNeeded``.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from understudy.core.rollout.proxy_warm_up import LiveProxy, ProxyAnswer
from understudy.ports.monitoring.lease import Epoch


class LoggedId(NamedTuple):
    """A call in the log."""

    prediction_id: str
    predicted_at: float
    """In seconds since the epoch."""


class NewWarmUp(NamedTuple):
    """What proxies are to be asked."""

    version_id: int
    instances: Sequence[str]
    """Those that are asked."""
    seconds: float
    """How long they have."""
    example_calls: int = 0
    """0: only whether it is ready."""
    champion_id: int | None = None
    """Whose logged calls are sent again."""
    logged: Sequence[LoggedId] = ()


class WarmUpAsked(NamedTuple):
    """What a proxy is asked."""

    id: int
    model_name: str
    version_id: int
    champion_id: int | None
    example_calls: int
    logged_calls: int
    left_seconds: float
    """Until the answer is too late, by Postgres' clock."""


class WarmUpRequests(Protocol):
    """The side that asks: the monitor, and commands."""

    def shared_session(self) -> AbstractAsyncContextManager[None]:
        """Return a context in which all calls share a connection, which is cheaper where there are many."""

    async def live_proxies(self) -> Sequence[LiveProxy] | None:
        """Return the live proxies; ``None`` where another session keeps their reports locked."""

    async def ask(self, new: NewWarmUp, *, epoch: Epoch | None = None) -> int:
        """Ask proxies, and return the request's id.

        Raises:
            LeadershipLost: Another monitor leads.
        """

    async def count_answers(self, request_id: int) -> int:
        """Return how many have answered so far."""

    async def answers(self, request_id: int) -> Mapping[str, ProxyAnswer | None]:
        """Return what was answered, by proxy; ``None`` for what no proxy can have answered."""


class WarmUpInbox(Protocol):
    """The side of a proxy."""

    async def open(self, instance: str, at_most: int) -> Sequence[WarmUpAsked]:
        """Return the oldest requests that are open and that this proxy has not answered."""

    async def inputs(self, request_id: int) -> Mapping[int, str]:
        """Return the logged inputs that an open request names, as JSON objects by their places from 0 on.

        Those that are not in the log any more, or are too large, are left out.
        """

    async def answer(self, request_id: int, instance: str, answer: ProxyAnswer) -> None:
        """Store an answer.

        Raises:
            RegistryUnavailable: It comes too late, or this proxy was not asked.
        """
