"""Concurrent misses on one key make one call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from understudy.errors import Overloaded

Value = TypeVar("Value")


class SingleFlight(Generic[Value]):
    """The calls that are under way, by key. Bounded by the requests in flight."""

    def __init__(self) -> None:
        self._flights: dict[str, asyncio.Future[Value]] = {}

    def __len__(self) -> int:
        return len(self._flights)

    async def run(self, key: str, call: Callable[[], Awaitable[Value]]) -> tuple[Value, bool]:
        """Return the value of ``call``, and whether it was made here rather than by a caller before.

        A failed call is not shared: each request that waited makes its own, since a deadline or a cancellation is that
        of the first caller only. An overload is shared: no request waits for it twice.
        """
        flight = self._flights.get(key)
        if flight is not None:
            try:
                return await asyncio.shield(flight), False
            except _Failed:
                return await call(), True
        flight = asyncio.get_running_loop().create_future()
        self._flights[key] = flight
        try:
            value = await call()
        except BaseException as problem:
            self._end(key, flight)
            flight.set_exception(problem if isinstance(problem, Overloaded) else _Failed())
            flight.exception()  # marks it as retrieved: it is no error when no request waits
            raise
        self._end(key, flight)
        flight.set_result(value)
        return value, True

    def _end(self, key: str, flight: asyncio.Future[Value]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]


class _Failed(Exception):
    pass
