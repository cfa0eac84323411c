"""The system's resolver: ``getaddrinfo``, in a few daemon threads that no exit waits for."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from understudy.adapters.http.name_resolver import Resolve, addresses_of, ask_in_thread, read_addresses
from understudy.adapters.model_servers.addresses import RESOLVE_SECONDS
from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.ports.upstream.resolver import NameNotResolved

MAX_QUESTIONS = 8
"""Names that are asked for at a time. A name server that hangs holds so many threads, and none of the event loop's."""
MAX_LATE_QUESTIONS = 4
"""Of these for names whose last answer was late: those of a dead zone keep no thread from names that are well."""
MAX_LATE = 1_024
"""Names that are known to be late."""


class SystemResolver:
    """See the port. Versions that ask for the same name at the same time share a question.

    Args:
        resolve: Asks for one name, and may take long.
        now: The monotonic clock, in seconds.
    """

    def __init__(self, resolve: Resolve = addresses_of, now: Callable[[], float] = time.monotonic) -> None:
        self._resolve = resolve
        self._now = now
        self._free = asyncio.Semaphore(MAX_QUESTIONS)
        self._free_for_late = asyncio.Semaphore(MAX_LATE_QUESTIONS)
        self._late: set[Target] = set()
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
        async with self._free_for_late if target in self._late else nullcontext(), self._free:
            began = self._now()
            try:
                return await ask_in_thread(self._resolve, target)
            finally:
                self._note(target, is_late=self._now() - began > RESOLVE_SECONDS)

    def _note(self, target: Target, *, is_late: bool) -> None:
        if not is_late:
            self._late.discard(target)
        elif len(self._late) < MAX_LATE:
            self._late.add(target)

    def _forget(self, target: Target, asked: "asyncio.Task[Sequence[str]]") -> None:
        del self._asked[target]
        if not asked.cancelled():
            asked.exception()  # retrieved, also when each version that asked has gone
