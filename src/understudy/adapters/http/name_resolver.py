"""The addresses of a receiver's name: one question at a time, in a thread that no exit waits for."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from ipaddress import ip_address
from threading import Thread

from understudy.core.upstream.endpoint_rules import Address, Target
from understudy.ports.upstream.resolver import NameNotResolved

MAX_ADDRESSES = 4
"""Of one name that are tried."""
RESOLVE_SECONDS = 5.0

Resolve = Callable[[str, int], Sequence[str]]
"""Returns the addresses of a host, as texts, and may take long."""


def addresses_of(host: str, port: int) -> Sequence[str]:
    """Ask the system's resolver.

    Raises:
        OSError: The name has no address, or no name server can be asked.
    """
    return [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class NameResolver:
    """Asks for the addresses of one target; calls at the same time share a question.

    A name server that hangs takes this one thread: neither those of the event loop, which also resolve Postgres' name,
    nor more of its own with each call; and as a daemon it holds up no exit.
    """

    def __init__(self, resolve: Resolve = addresses_of) -> None:
        self._resolve = resolve
        self._asked: asyncio.Future[Sequence[str]] | None = None

    async def addresses(self, target: Target) -> Sequence[Address]:
        """Return up to :data:`MAX_ADDRESSES`.

        Raises:
            NameNotResolved: There is no answer, or none within :data:`RESOLVE_SECONDS`.
        """
        if self._asked is None or self._asked.done():
            self._asked = ask_in_thread(self._resolve, target)
        try:
            async with asyncio.timeout(RESOLVE_SECONDS) as limit:
                found = await asyncio.shield(self._asked)
        except TimeoutError:
            if not limit.expired():
                raise
            raise NameNotResolved(f"no name server answered within {RESOLVE_SECONDS:g} s") from None
        except OSError as problem:
            raise NameNotResolved(problem.strerror or type(problem).__name__) from None
        return read_addresses(found)[:MAX_ADDRESSES]


def ask_in_thread(resolve: Resolve, target: Target) -> "asyncio.Future[Sequence[str]]":
    """Ask in a daemon thread, and return the future of the answer, which has what ``resolve`` returns or raises."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()
    # Read once, so that an answer that comes after every caller has given up is no warning.
    answer.add_done_callback(lambda done: done.cancelled() or done.exception())

    def settle(found: Sequence[str], problem: Exception | None) -> None:
        if not answer.done():
            answer.set_result(found) if problem is None else answer.set_exception(problem)

    def work() -> None:
        found: Sequence[str] = ()
        problem: Exception | None = None
        try:
            found = resolve(target.host, target.port)
        except Exception as raised:  # noqa: BLE001 - told to the callers
            problem = raised
        with suppress(RuntimeError):  # the loop is closed: this process ends
            loop.call_soon_threadsafe(settle, found, problem)

    Thread(target=work, name="understudy-resolver", daemon=True).start()
    return answer


def read_addresses(texts: Iterable[str]) -> list[Address]:
    """Return addresses, each once, in the order of the answer; a zone, which link-local ones have, is left out."""
    return [ip_address(text) for text in dict.fromkeys(text.partition("%")[0] for text in texts)]
