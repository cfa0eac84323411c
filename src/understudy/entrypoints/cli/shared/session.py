"""One command's session with the stores: opened in an event loop of its own, closed when the command ends."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from understudy.bootstrap.session import Session, session_of
from understudy.entrypoints.cli.shared.environment import settings_with_demo
from understudy.entrypoints.documents.policies import version_label
from understudy.ports.experiments.experiment_log import ExperimentLog
from understudy.ports.experiments.experiment_store import ExperimentStore
from understudy.ports.registry.registry import Registry
from understudy.settings import Settings

T = TypeVar("T")


def with_session(work: Callable[[Session], Awaitable[T]], settings: Settings | None = None) -> T:
    """Do ``work`` in a new event loop, close what it opened, and return what it returned.

    A command that has read its settings already gives them: reading them names the demo they are of.

    Raises:
        RegistryUnavailable: Postgres does not answer in time.
    """
    chosen = settings or settings_with_demo()

    async def opened() -> T:
        async with session_of(chosen) as session:
            return await work(session)

    return asyncio.run(opened())


def with_registry(work: Callable[[Registry], Awaitable[T]]) -> T:
    """Do ``work`` with the registry alone; raises as :func:`with_session`."""
    return with_session(lambda session: work(session.registry))


class Experiments(NamedTuple):
    """What a command about one model's experiments works with."""

    log: ExperimentLog
    store: ExperimentStore
    labels: Mapping[int, str]
    """The model's versions by their ids."""

    def label(self, version_id: int) -> str:
        """Return a version's text."""
        return version_label(version_id, self.labels)


def with_experiments(model_name: str, work: Callable[[Experiments], Awaitable[T]]) -> T:
    """Do ``work`` with the experiments of one model.

    Raises:
        NotRegistered: There is no such model.
        RegistryUnavailable: Postgres does not answer in time.
    """

    async def opened(session: Session) -> T:
        await session.registry.show_model(model_name)
        labels = {version.id: version.version for version in await session.registry.list_versions(model_name)}
        return await work(Experiments(session.experiment_log, session.experiments, labels))

    return with_session(opened)
