"""Rollouts for the length of one command."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from understudy.adapters.postgres.history import PostgresPredictionHistory
from understudy.adapters.postgres.rollouts import PostgresRolloutStore
from understudy.adapters.postgres.windows import PostgresWindowLog
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.settings import Settings

if TYPE_CHECKING:
    from understudy.ports.policy import PolicySource
    from understudy.ports.prediction_history import FailureHistory
    from understudy.ports.registry import Registry
    from understudy.ports.rollout_store import RolloutStore
    from understudy.ports.window_log import WindowLog
    from understudy.rollout.outcome_check import Measure

T = TypeVar("T")
HISTORY_SECONDS = 2.0
"""Longest wait for what the log adds to a picture that is there without it."""


class Opened:
    """What a command about rollouts works with, each opened when it is first asked for.

    Somebody who takes traffic back should not wait for what reports are made with: the registry takes 0.6 s to import.

    Args:
        settings: Where everything is.
        stack: Closes what was opened.
    """

    def __init__(self, settings: Settings, stack: AsyncExitStack) -> None:
        self._url = settings.database_url.get_secret_value()
        self._seconds = settings.database_timeout_seconds
        self._stack = stack
        self.settings = settings

    @cached_property
    def rollouts(self) -> "RolloutStore":
        """The rollouts."""
        return PostgresRolloutStore(self._url, timeout_seconds=self._seconds)

    @cached_property
    def windows(self) -> "WindowLog":
        """What versions did."""
        return PostgresWindowLog(self._url, timeout_seconds=self._seconds)

    @cached_property
    def history(self) -> "FailureHistory":
        """What calls failed with."""
        return PostgresPredictionHistory(self._url, timeout_seconds=HISTORY_SECONDS)

    @cached_property
    def registry(self) -> "Registry":
        """Versions and policies."""
        from understudy.adapters.postgres.registry import PostgresRegistry  # noqa: PLC0415 - see the class

        registry = PostgresRegistry(self._url, timeout_seconds=self._seconds)
        self._stack.push_async_callback(registry.close)
        return registry

    @cached_property
    def policies(self) -> "PolicySource":
        """Versions as proxies read them."""
        from understudy.adapters.postgres.policy import PostgresPolicySource  # noqa: PLC0415 - see the class

        policies = PostgresPolicySource(self._url, timeout_seconds=self._seconds, reads_keys=False)
        self._stack.push_async_callback(policies.close)
        return policies

    @cached_property
    def measure_outcome(self) -> "Measure":
        """What asks for the outcome that a rollout is judged by."""
        from understudy.bootstrap.outcomes import measure_outcomes  # noqa: PLC0415 - see the class
        from understudy.entrypoints.cli.shared.experiment_session import ANSWER_SECONDS  # noqa: PLC0415 - see the class

        return measure_outcomes(self._url, ANSWER_SECONDS)


def with_rollouts(work: Callable[[Opened], Awaitable[T]]) -> T:
    """Do ``work`` in a new event loop, close what it opened, and return what it returned.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    settings = settings_with_demo()

    async def opened() -> T:
        async with AsyncExitStack() as stack:
            return await work(Opened(settings, stack))

    return asyncio.run(opened())
