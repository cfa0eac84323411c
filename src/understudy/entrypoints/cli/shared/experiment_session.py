"""The experiments' log and store for the length of one command."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from understudy.adapters.postgres.declarations import PostgresExperimentStore
from understudy.adapters.postgres.experiments import PostgresExperimentLog
from understudy.adapters.postgres.registry import PostgresRegistry
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.cli.shared.errors import CommandRefused, ExitCode
from understudy.entrypoints.documents.policies import version_label
from understudy.ports.experiment_log import ExperimentLog
from understudy.ports.experiment_store import ExperimentStore

T = TypeVar("T")
ANSWER_SECONDS = 60.0
"""Longest time that Postgres has for one question to the log: somebody waits for it."""


class Experiments(NamedTuple):
    """What a command about one model works with."""

    log: ExperimentLog
    store: ExperimentStore
    labels: Mapping[int, str]
    """The model's versions by their ids."""

    def label(self, version_id: int) -> str:
        """Return a version's text."""
        return version_label(version_id, self.labels)


def with_experiments(model_name: str, work: Callable[[Experiments], Awaitable[T]]) -> T:
    """Do ``work`` in a new event loop, and return what it returned.

    Raises:
        NotRegistered: There is no such model.
        RegistryUnavailable: Postgres does not answer in time.
    """
    settings = settings_with_demo()
    database_url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds

    async def opened() -> T:
        registry = PostgresRegistry(database_url, timeout_seconds=seconds)
        try:
            await registry.show_model(model_name)
            versions = await registry.list_versions(model_name)
        finally:
            await registry.close()
        return await work(
            Experiments(
                PostgresExperimentLog(database_url, timeout_seconds=ANSWER_SECONDS),
                PostgresExperimentStore(database_url, timeout_seconds=seconds),
                {version.id: version.version for version in versions},
            )
        )

    return asyncio.run(opened())


def write_page(path: Path, content: str) -> None:
    """Write a report.

    Raises:
        CommandRefused: It cannot be written.
    """
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as problem:
        raise CommandRefused(
            ExitCode.USAGE, f"{path} cannot be written: {problem.strerror}", "Name another file."
        ) from None
