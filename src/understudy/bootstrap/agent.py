"""The parts of an agent process."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePosixPath
from uuid import uuid4

import structlog

from understudy.adapters.artifacts.case_file import read_case_rows
from understudy.adapters.artifacts.folder_stage import FolderStage
from understudy.adapters.artifacts.last_loaded_file import LastLoadedFile
from understudy.adapters.model_servers.control.process_memory import ProcessMemory
from understudy.adapters.model_servers.control.repository_control import RepositoryControl
from understudy.adapters.model_servers.control.repository_folder import RepositoryFolder
from understudy.adapters.model_servers.control.repository_layout import LAYOUTS
from understudy.adapters.postgres.loading.agent_store import PostgresAgentStore
from understudy.adapters.postgres.monitoring.lease import PostgresLease, agent_of
from understudy.adapters.telemetry.prometheus import PrometheusTelemetry
from understudy.bootstrap.artifacts import limits_of, origins_of
from understudy.core.loading.cases import CaseRows
from understudy.core.loading.memory import PADS
from understudy.loading.agent import Agent
from understudy.loading.artifact_validation import ArtifactValidation, AskVersion
from understudy.loading.memory_budget import MemoryBudget
from understudy.loading.server_lifetime import ServerLifetime
from understudy.loading.steps import Steps
from understudy.loading.version_work import AgentServer
from understudy.loading.without_registry import WithoutRegistry
from understudy.monitoring.worker import Job, MonitorWorker
from understudy.ports.loading.server_control import ServerControl
from understudy.settings import Settings

_log = structlog.get_logger(__name__)

ROUND_SECONDS = 5.0
"""Time between two rounds without news: what a lost notification, or a server that was restarted, waits."""
MAX_ROUND_SECONDS = 30.0


@dataclass(slots=True)
class AgentParts:
    """What an agent process has open."""

    worker: MonitorWorker
    telemetry: PrometheusTelemetry
    listen: Callable[[], Awaitable[None]]
    """Hears of placements until cancelled, or until its connection is lost."""
    lifetime: ServerLifetime
    """Of the model server: whether it is ready, and its drain."""


@asynccontextmanager
async def open_agent(settings: Settings) -> AsyncIterator[AgentParts]:
    """Open an agent's parts; the settings of its server must be there, as ``understudy serve agent`` makes sure."""
    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    name = settings.server_name or settings.instance
    assert settings.server_group is not None
    assert settings.server_target is not None
    assert settings.server_control is not None
    async with AsyncExitStack() as stack:
        telemetry = PrometheusTelemetry()
        lease = PostgresLease(url, row=agent_of(name))
        stack.push_async_callback(lease.close)
        store = PostgresAgentStore(url, name, timeout_seconds=seconds)
        stack.push_async_callback(store.close)
        control = _control(settings, settings.server_control)
        stack.push_async_callback(control.close)
        stage = FolderStage(settings.stage_dir / "artifacts", origins_of(settings), limits_of(settings))
        agent = Agent(
            AgentServer(name, settings.server_group, settings.server_target, settings.server_transition),
            store,
            control,
            stage,
            telemetry,
            memory=MemoryBudget(
                stage,
                telemetry,
                capacity_bytes=settings.server_memory_bytes,
                measure=ProcessMemory(settings.server_pid_file).use,
                pad_bytes=PADS[settings.server_kind],
            ),
            validation=_validation(settings, settings.server_target),
            without_registry=WithoutRegistry(control, stage, LastLoadedFile(settings.stage_dir / "last_loaded")),
            now=time.monotonic,
            on_progress=lambda: worker.hurry(),  # noqa: PLW0108 - the worker is made below, with the agent's rounds
        )
        stack.push_async_callback(agent.close)
        worker = MonitorWorker(
            lease,
            [Job("round", ROUND_SECONDS, MAX_ROUND_SECONDS, agent.tick)],
            telemetry,
            holder=f"{settings.instance}:{os.getpid()}:{uuid4().hex[:12]}",
            finish_seconds=settings.drain_seconds,
            now=time.monotonic,
            unix=time.time,
            kind="agent",
            stand_down=agent.close,
            stranded=agent.look_without_registry,
            answered=agent.leave_to_registry,
        )
        yield AgentParts(worker, telemetry, lambda: store.listen(worker.hurry), agent.lifetime)


def _control(settings: Settings, target: str) -> ServerControl:
    models = settings.stage_dir / "models"
    _make(models)
    if settings.server_kind == "torchserve":
        from understudy.adapters.model_servers.control.torchserve_control import TorchServeControl  # noqa: PLC0415

        return TorchServeControl(target, models)
    if settings.server_kind == "tfserving":
        from understudy.adapters.model_servers.control.tfserving_control import TfServingControl  # noqa: PLC0415

        seen_as = settings.server_models_dir
        return TfServingControl(target, models, None if seen_as is None else PurePosixPath(seen_as))
    kind = settings.server_kind
    return RepositoryControl(target, RepositoryFolder(models, LAYOUTS[kind]), kind)


def _make(models: Path) -> None:
    """Make the folder that the server reads: some do not start without it, and in a pod the agent starts first."""
    try:
        models.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        advice = "have UNDERSTUDY_STAGE_DIR name a folder that the agent can write"
        _log.error("agent.stage_not_writable", folder=str(models), problem=str(problem), next=advice)


def _validation(settings: Settings, target: str) -> ArtifactValidation:
    """Return what asks versions at the one server, as a proxy of these settings would."""
    steps = Steps(
        hard_calls=settings.validation != "cases",
        load_seconds=settings.validation_load_seconds if settings.validation == "load" else 0.0,
        most_rows=settings.backend_batch_rows,
    )
    opened = cache(partial(_asking, settings, target))

    async def ask(model_name: str, version: str, rows: CaseRows | None, steps: Steps) -> str:
        # The import takes the better part of a second, in which rounds go on.
        asking = await asyncio.to_thread(opened)
        return await asking(model_name, version, rows, steps)

    return ArtifactValidation(read_case_rows, ask, steps)


def _asking(settings: Settings, target: str) -> AskVersion:
    # Numpy and the clients of all model servers, for agents that have something to ask.
    from understudy.adapters.model_servers.connect import connect  # noqa: PLC0415
    from understudy.adapters.postgres.registry.registry import PostgresRegistry  # noqa: PLC0415
    from understudy.core.routing.policy_document import version_from_row  # noqa: PLC0415
    from understudy.loading.validation import ask_version  # noqa: PLC0415

    url, seconds = settings.database_url.get_secret_value(), settings.database_timeout_seconds
    registry = PostgresRegistry(url, timeout_seconds=seconds)

    connect_backend = partial(
        connect, rules=settings.endpoint_rules, ca_file=settings.backend_ca, grpc_client=settings.grpc_client
    )

    async def ask(model_name: str, version: str, rows: CaseRows | None, steps: Steps) -> str:
        record = await registry.show_version(model_name, version)
        asked = version_from_row(model_name, {**record._asdict(), "endpoints": (target,)})
        return await ask_version(connect_backend, asked, rows, steps)

    return ask
