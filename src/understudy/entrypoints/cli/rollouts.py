"""Rollouts for the length of one command."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from understudy.adapters.postgres_policy import PostgresPolicySource
from understudy.adapters.postgres_registry import PostgresRegistry
from understudy.adapters.postgres_rollouts import PostgresRolloutStore
from understudy.adapters.postgres_windows import PostgresWindowLog
from understudy.bootstrap.outcomes import measure_outcomes
from understudy.entrypoints.cli.environment import settings_with_demo
from understudy.ports import Registry, RolloutStore, WindowLog
from understudy.rollout.outcome_guard import Measure

T = TypeVar("T")


class Opened(NamedTuple):
    """What a command about rollouts works with."""

    registry: Registry
    rollouts: RolloutStore
    windows: WindowLog
    policies: PostgresPolicySource
    measure_outcome: Measure


def with_rollouts(work: Callable[[Opened], Awaitable[T]]) -> T:
    """Open the registry, do ``work`` in a new event loop, close it, and return what the work returned.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    settings = settings_with_demo()
    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds

    async def opened() -> T:
        registry = PostgresRegistry(url, timeout_seconds=seconds)
        policies = PostgresPolicySource(url, timeout_seconds=seconds)
        try:
            return await work(
                Opened(
                    registry,
                    PostgresRolloutStore(url, timeout_seconds=seconds),
                    PostgresWindowLog(url, timeout_seconds=seconds),
                    policies,
                    measure_outcomes(url, seconds),
                )
            )
        finally:
            await policies.close()
            await registry.close()

    return asyncio.run(opened())
