"""One command's session with the stores: opened in an event loop of its own, closed when the command ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from understudy.bootstrap.control_plane import ControlPlane, DatabaseControlPlane
from understudy.bootstrap.session import Session, session_of
from understudy.entrypoints.cli.shared.contexts.chosen_proxy import chosen_proxy
from understudy.entrypoints.cli.shared.environment import hint_without_place, read_settings, settings_with_demo
from understudy.entrypoints.cli.shared.rendering import advise
from understudy.entrypoints.documents.policies import version_label
from understudy.errors import RegistryUnavailable
from understudy.ports.experiments.experiment_log import ExperimentLog
from understudy.ports.experiments.experiment_store import ExperimentStore
from understudy.ports.registry.registry import Registry, VersionRecord
from understudy.settings import Settings

if TYPE_CHECKING:
    from understudy.bootstrap.http_control_plane import HttpControlPlane

T = TypeVar("T")
H = TypeVar("H")


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

    try:
        return asyncio.run(opened())
    except RegistryUnavailable as problem:
        if type(problem) is RegistryUnavailable:
            problem.next_step = hint_without_place(chosen) or problem.next_step
        raise


def with_session_or_proxy(
    stored: Callable[[Session], Awaitable[T]],
    over_http: "Callable[[HttpControlPlane], Awaitable[H]]",
    *,
    seconds: float | None = None,
    settings: Settings | None = None,
) -> T | H:
    """Do what is chosen here: ``stored`` with the database, or ``over_http`` with a proxy; each within ``seconds``.

    ``settings`` are those of the place, if the command has read them already, which named the demo they are of.

    Raises:
        RegistryUnavailable: Postgres, or the proxy, does not answer in time.
    """
    chosen = chosen_proxy(read_settings())
    if chosen is None:
        hurried = {} if seconds is None else {"database_timeout_seconds": seconds}
        return with_session(stored, (settings or settings_with_demo()).model_copy(update=hurried))

    if seconds is None:
        advise(chosen.words())

    async def opened() -> H:
        from understudy.bootstrap.http_control_plane import HttpControlPlane  # noqa: PLC0415 - httpx2, over HTTP alone

        async with HttpControlPlane(*chosen.place, timeout_seconds=seconds) as control_plane:
            return await over_http(control_plane)

    return asyncio.run(opened())


def with_control_plane(
    work: Callable[[ControlPlane], Awaitable[T]], *, seconds: float | None = None, settings: Settings | None = None
) -> T:
    """Do ``work`` with the control plane that is chosen here; raises as :func:`with_session_or_proxy`."""

    async def stored(session: Session) -> T:
        return await work(DatabaseControlPlane(session, settings_with_demo(lambda _: None)))

    return with_session_or_proxy(stored, work, seconds=seconds, settings=settings)


@asynccontextmanager
async def open_control_plane() -> AsyncIterator[ControlPlane]:
    """Open the control plane that is chosen here, for a command whose event loop goes on when it is closed.

    Raises:
        CommandRefused: What is chosen here cannot be used.
    """
    chosen = chosen_proxy(read_settings())
    if chosen is None:
        settings = settings_with_demo(lambda _: None)
        async with session_of(settings) as session:
            yield DatabaseControlPlane(session, settings)
        return
    from understudy.bootstrap.http_control_plane import HttpControlPlane  # noqa: PLC0415 - httpx2, over HTTP alone

    async with HttpControlPlane(*chosen.place) as control_plane:
        yield control_plane


def with_registry(work: Callable[[Registry], Awaitable[T]], *, settings: Settings | None = None) -> T:
    """Do ``work`` with the registry alone; raises as :func:`with_control_plane`."""
    return with_control_plane(lambda control_plane: work(control_plane.registry), settings=settings)


class Experiments(NamedTuple):
    """What a command about one model's experiments works with."""

    log: ExperimentLog
    store: ExperimentStore
    versions: Sequence[VersionRecord]
    """The model's."""

    @property
    def labels(self) -> Mapping[int, str]:
        """The model's versions by their ids."""
        return {version.id: version.version for version in self.versions}

    def label(self, version_id: int) -> str:
        """Return a version's text."""
        return version_label(version_id, self.labels)


async def experiments_of(session: Session, model_name: str) -> Experiments:
    """Return the experiments of one model.

    Raises:
        NotRegistered: There is no such model.
        RegistryUnavailable: Postgres does not answer in time.
    """
    await session.registry.show_model(model_name)
    versions = await session.registry.list_versions(model_name)
    return Experiments(session.experiment_log, session.experiments, versions)


def with_experiments(model_name: str, work: Callable[[Experiments], Awaitable[T]]) -> T:
    """Do ``work`` with the experiments of one model; raises as :func:`experiments_of`."""

    async def opened(session: Session) -> T:
        return await work(await experiments_of(session, model_name))

    return with_session(opened)
