"""The registry for the length of one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from understudy.adapters.postgres.registry import PostgresRegistry
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.ports.registry import Registry

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
