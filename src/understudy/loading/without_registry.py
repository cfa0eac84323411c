"""A server that comes back empty while Postgres is away: it gets what it had, from the stage."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NamedTuple

import structlog

from understudy.background.tasks import end_tasks
from understudy.core.loading.served_name import is_served_name, served_name
from understudy.core.loading.state import retry_seconds
from understudy.errors import RegistryError
from understudy.ports.loading.agent_store import VersionAtServer
from understudy.ports.loading.artifact_stage import ArtifactStage
from understudy.ports.loading.last_loaded import LastLoaded, LoadedModel
from understudy.ports.loading.server_control import ServerControl

_log = structlog.get_logger(__name__)

MAX_PAUSE_SECONDS: Final = 30.0
"""After a version's first attempts, which follow as those of a round do."""


class _Attempts(NamedTuple):
    number: int = 0
    next_at: float = 0.0
    """By the event loop's clock."""
    problem: str = ""
    """Of the last one."""


class WithoutRegistry:
    """Remembers what the server has, and has it loaded again while the records cannot be read.

    It begins with a server that has none of an agent's versions, and goes on while that has nothing but what it was
    given here, and all of it. Any other one was not restarted, or another agent is at work, whose decisions this one
    does not know; what operators loaded themselves says nothing. Nothing is unloaded, recorded or announced: proxies
    have the endpoints still.
    """

    def __init__(self, control: ServerControl, stage: ArtifactStage, last: LastLoaded) -> None:
        self._control = control
        self._stage = stage
        self._last = last
        self._models: frozenset[LoadedModel] = frozenset()
        """What proxies may call, by the last round."""
        self._kept: frozenset[LoadedModel] | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._given: set[str] = set()
        """What the server was asked to load since it was found empty."""
        self._had: frozenset[str] = frozenset()
        """What of that it had at the last look that was not broken off."""
        self._attempts: dict[str, _Attempts] = {}

    async def note(self, versions: Sequence[VersionAtServer]) -> None:
        """Keep which versions proxies may call, where that has changed, beside the round: Postgres answers."""
        await self._stop_restoring()
        self._models = frozenset(filter(None, map(_model_of, versions)))
        if self._models != self._kept and (self._keeping is None or self._keeping.done()):
            self._keeping = asyncio.get_running_loop().create_task(self._keep())

    def look(self) -> None:
        """Look at the server beside everything else, unless that is under way; Postgres does not answer."""
        if self._restoring is None or self._restoring.done():
            self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def close(self) -> None:
        """Break off what is under way, and forget it: the server and the file may be another agent's from here on."""
        await self._stop_restoring()
        if self._keeping is not None:
            await end_tasks([self._keeping])
            self._keeping = None
        self._kept = None

    async def _keep(self) -> None:
        """Write until what is kept is what the last round found, or until it cannot be: then the next round tries."""
        while (models := self._models) != self._kept and await self._last.keep(models):
            self._kept = models

    async def _stop_restoring(self) -> None:
        if self._restoring is not None:
            await end_tasks([self._restoring])
            self._restoring = None
        self._given.clear()
        self._attempts.clear()
        self._had = frozenset()

    async def _restore(self) -> None:
        with suppress(RegistryError):  # it does not answer yet, or lets nothing be loaded
            for model in await self._last.read():
                served = frozenset(filter(is_served_name, await self._control.loaded()))
                if not self._is_own(served):
                    return
                if model.name not in served and self._is_due(model.name):
                    self._given.add(model.name)
                    await self._load(model)

    def _is_own(self, served: frozenset[str]) -> bool:
        """Whether no other agent has loaded or unloaded something at a server that has this of agents' versions."""
        if served and not self._had <= served <= self._given:  # an empty one was restarted, maybe once more
            return False
        self._had = served
        return True

    def _is_due(self, name: str) -> bool:
        return asyncio.get_running_loop().time() >= self._attempts.get(name, _Attempts()).next_at

    async def _load(self, model: LoadedModel) -> None:
        before = self._attempts.get(model.name, _Attempts())
        problem = await self._load_or_say_why_not(model)
        if not problem:
            _log.warning("agent.loaded_without_registry", name=model.name)
        elif problem != before.problem:
            _log.warning("agent.not_loaded_again", name=model.name, problem=problem)
        number = before.number + 1
        # After a load too: a server that falls over it is not to be asked each second.
        next_at = asyncio.get_running_loop().time() + (retry_seconds(number) or MAX_PAUSE_SECONDS)
        self._attempts[model.name] = _Attempts(number, next_at, problem)

    async def _load_or_say_why_not(self, model: LoadedModel) -> str:
        try:
            folder = await self._stage.verified(model.digest)
            if folder is None:
                return "not on the stage, or damaged there"
            await self._control.load(model.name, folder, model.framework)
        except RegistryError as problem:
            return f"{problem.code} {problem.detail}"
        return ""


def _model_of(version: VersionAtServer) -> LoadedModel | None:
    """Return a version with an endpoint as the server has it; ``None``: it has none, or its artifact is not known."""
    digest = None if version.record is None else version.record.digest
    if digest is None or not version.has_endpoint:
        return None
    return LoadedModel(served_name(version.model_name, version.version), digest, version.framework)
