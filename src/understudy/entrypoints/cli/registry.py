"""The registry for the length of one command."""

import asyncio
import getpass
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar

from understudy.adapters.postgres_registry import PostgresRegistry
from understudy.entrypoints.cli.environment import settings_with_demo
from understudy.ports import Origin, Registry

T = TypeVar("T")


def with_registry(work: Callable[[Registry], Awaitable[T]]) -> T:
    """Open the registry, do ``work`` with it in a new event loop, close it, and return what the work returned.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    settings = settings_with_demo()

    async def opened() -> T:
        registry = PostgresRegistry(
            settings.database_url.get_secret_value(), timeout_seconds=settings.database_timeout_seconds
        )
        try:
            return await work(registry)
        finally:
            await registry.close()

    return asyncio.run(opened())


def origin_of_command(reason: str | None) -> Origin:
    """Return who sits at this command line, for the audit."""
    return Origin(actor=this_person(), via="cli", reason=reason)


def this_person() -> str:
    """Return the user of this machine as ``name@host``; a container may have no name for its user id."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"
