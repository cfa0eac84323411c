"""The control plane over HTTP: what a call works with, in which bulkhead it runs, and how long it may take.

The answers of :mod:`rollouts`, :mod:`policies` and :mod:`reports` are the documents that the command line prints with
``--json``, but for what only one of them can say: calls in flight here, the next command and the entities that a change
moves there.
"""

from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

import structlog

from understudy.bootstrap.control import Control
from understudy.bootstrap.session import Session
from understudy.core.routing.access import key_id_of
from understudy.core.routing.policy_file import MAX_NAME
from understudy.entrypoints.documents.experiments import Label
from understudy.entrypoints.documents.json_text import json_text
from understudy.entrypoints.documents.policies import version_label
from understudy.entrypoints.proxy.control.worker_pool import WorkerPool
from understudy.entrypoints.proxy.messages.headers import RequestOptions
from understudy.entrypoints.proxy.messages.reply import JSON, Reply
from understudy.errors import MigrationNeeded, NotRegistered, RegistryUnavailable
from understudy.ports.registry.registry import Actor

_log = structlog.get_logger(__name__)
T = TypeVar("T")
VIA = "http"
READ_SECONDS = WRITE_SECONDS = 10.0
REPORT_SECONDS = 30.0
"""Longer than Postgres has for an answer, so that a slow question gets Postgres's advice and no E504."""


class Bulkhead(Enum):
    """Bulkheads by kind of call: a rollback waits neither for a report nor for a confirmation."""

    READ = "read"
    WRITE = "write"
    ROLLBACK = "rollback"
    CONFIRMATION = "confirmation"


PLACES: Mapping[Bulkhead, int] = {Bulkhead.READ: 2, Bulkhead.WRITE: 4, Bulkhead.ROLLBACK: 2, Bulkhead.CONFIRMATION: 4}
"""Calls at a time in each."""


class ControlHandler:
    """The bulkheads of the control plane.

    Args:
        control: What calls work with.
        actor_of: Returns who a caller that was admitted is, for the audit; by default the id of its key.
    """

    def __init__(
        self,
        control: Control,
        actor_of: Callable[[RequestOptions], str] = lambda options: key_id_of(options.authorization),
    ) -> None:
        self._actor_of = actor_of
        self.probe = control.probe
        self.challenger_budget_ratio = control.challenger_budget_ratio
        self.try_version = control.try_version
        self.validate_version = control.validate_version
        self.is_validating = False
        self.pools = {bulkhead: WorkerPool(control.parts, places) for bulkhead, places in PLACES.items()}

    def call(self, model_name: str, options: RequestOptions) -> "ControlCall":
        """Return a call about a model by the caller that the request's headers name."""
        return ControlCall(self, model_name, self._actor_of(options), options.timeout_seconds)

    def close(self) -> None:
        """Cancel the calls under way and release the threads."""
        for pool in self.pools.values():
            pool.close()


class ControlCall(NamedTuple):
    """One call: ``timeout_seconds`` is the caller's deadline, ``None`` for as long as such a call may take."""

    handler: ControlHandler
    model_name: str
    key_id: str
    timeout_seconds: float | None

    def actor(self, reason: str | None) -> Actor:
        """Return whose change it is, for the audit."""
        return Actor(self.key_id, VIA, reason)

    async def run(self, bulkhead: Bulkhead, work: Callable[[Session], Awaitable[T]], seconds: float) -> T:
        """Return what the work returned, which may take ``seconds`` at most.

        Raises:
            NotRegistered: No model can have this name, or the work found none; without the names of other models.
            RegistryUnavailable, MigrationNeeded: Without addresses and statements, which are for the log.
            Overloaded, DeadlineExceeded: As :meth:`WorkerPool.carry_out`.
        """
        if len(self.model_name) > MAX_NAME or "\0" in self.model_name:  # before it is put into a query
            raise NotRegistered("there is no such model", hint="GET /v1/models lists what is served.")
        limit = seconds if self.timeout_seconds is None else min(seconds, self.timeout_seconds)
        try:
            return await self.handler.pools[bulkhead].carry_out(work, limit)
        except NotRegistered as problem:
            raise NotRegistered(problem.detail_without_others, hint=problem.next_step) from problem
        except (RegistryUnavailable, MigrationNeeded) as problem:
            _log.warning("control.failed", code=problem.code, why=problem.detail)
            if isinstance(problem, MigrationNeeded):
                raise MigrationNeeded(problem.detail_for_callers, hint=problem.next_step) from problem
            raise type(problem)(hint=problem.next_step) from problem


def answer(document: Mapping[str, Any], status: int = 200, *headers: tuple[bytes, bytes]) -> Reply:
    """Return a document as a reply."""
    return Reply(status, [JSON, *headers], json_text(document))


async def version_labels(parts: Session, model_name: str | None) -> dict[int, str]:
    """Return, for a call's document, the labels of a model's versions, or of all versions, by their ids."""
    return {version.id: version.version for version in await parts.registry.list_versions(model_name)}


async def version_labeller(parts: Session, model_name: str) -> Label:
    """Return, for a call's document, what gives a version's label by its id.

    Raises:
        NotRegistered: There is no such model.
    """
    await parts.registry.show_model(model_name)
    labels = await version_labels(parts, model_name)
    return lambda version_id: version_label(version_id, labels)
