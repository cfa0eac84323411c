"""The system's resolver: ``getaddrinfo``, in a few daemon threads that no exit waits for."""

import asyncio
from collections.abc import Sequence

from understudy.adapters.http.name_resolver import Resolve, addresses_of, ask_in_thread, read_addresses
from understudy.adapters.model_servers.addresses import RESOLVE_SECONDS
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.ports.upstream.resolver import NameNotResolved

MAX_QUESTIONS = 8
"""Names that are asked for at a time. A name server that hangs holds so many threads, and none of the event loop's."""


class SystemResolver:
    """See the port. Versions that ask for the same name at the same time share a question."""

    def __init__(self, resolve: Resolve = addresses_of) -> None:
        self._resolve = resolve
        self._free = asyncio.Semaphore(MAX_QUESTIONS)
        self._asked: dict[Target, asyncio.Task[Sequence[str]]] = {}

    async def addresses(self, target: Target) -> Sequence[Address]:
        """See the port; an answer is waited for :data:`RESOLVE_SECONDS` at most, for a free thread included."""
        if target not in self._asked:
            asking = self._asked[target] = asyncio.create_task(self._ask(target))
            asking.add_done_callback(lambda done: self._forget(target, done))
        try:
            async with asyncio.timeout(RESOLVE_SECONDS):
                # Shielded: a version that is closed must not end the question of the others.
                found = read_addresses(await asyncio.shield(self._asked[target]))
        except TimeoutError:
            raise NameNotResolved(f"no name server answered within {RESOLVE_SECONDS:g} s") from None
        except (OSError, UnicodeError) as problem:
            raise NameNotResolved(getattr(problem, "strerror", None) or type(problem).__name__) from None
        if not found:
            raise NameNotResolved("it has no address")
        return found

    async def _ask(self, target: Target) -> Sequence[str]:
        async with self._free:
            return await ask_in_thread(self._resolve, target)

    def _forget(self, target: Target, asked: "asyncio.Task[Sequence[str]]") -> None:
        del self._asked[target]
        if not asked.cancelled():
            asked.exception()  # retrieved, also when each version that asked has gone
