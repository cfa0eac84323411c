"""Calls about what agents load: the model servers, and a version's loading.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

import asyncio
from collections.abc import Sequence
from shlex import quote

from understudy.bootstrap.session import Session
from understudy.core.loading.cases import CaseRows
from understudy.core.routing.policy import ModelVersion
from understudy.entrypoints.documents.loading import loading_document, validation_document
from understudy.entrypoints.proxy.control.bodies import Remark
from understudy.entrypoints.proxy.control.handler import (
    READ_SECONDS,
    REPORT_SECONDS,
    WRITE_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
)
from understudy.entrypoints.proxy.control.version_bodies import ValidationRequest, replicas_of
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.errors import Overloaded, PolicyRefused
from understudy.loading.steps import StepResult, Steps


async def list_servers(call: ControlCall) -> Reply:
    """Return the model servers with an agent."""

    async def read(parts: Session) -> Reply:
        return answer({"servers": [server._asdict() for server in await parts.loading.list_servers()]})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def show_loading(call: ControlCall, version: str) -> Reply:
    """Return what agents do about a version; ``loading`` is null where they do not load it.

    Raises:
        NotRegistered: There is no such version.
    """

    async def read(parts: Session) -> Reply:
        await parts.registry.show_version(call.model_name, version)
        found = await parts.loading.show(call.model_name, version)
        return answer({"loading": None if found is None else loading_document(found)})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def load(
    call: ControlCall,
    version: str,
    body: bytes,
    *,
    group: str | None,
    seconds: float | None,
    requires_validation: bool | None,
    replicas: str | None,
    dry_run: bool,
) -> Reply:
    """Have agents load a version, for so many seconds or for good; raises as ``LoadingRegistry.load``.

    Raises:
        BodyInvalid: ``replicas`` is no number of servers.
    """
    actor, asked = call.actor(Remark.read(body).reason), replicas_of(replicas)

    async def ask(parts: Session) -> Reply:
        made = await parts.loading.load(
            call.model_name,
            version,
            actor,
            group_name=group,
            seconds=seconds,
            requires_validation=requires_validation,
            replicas=asked,
            dry_run=dry_run,
        )
        return answer({"loading": loading_document(made), "dry_run": dry_run})

    return await call.run(Bulkhead.WRITE, ask, WRITE_SECONDS)


async def unload(call: ControlCall, version: str, body: bytes, *, dry_run: bool) -> Reply:
    """Have agents unload a version; raises as ``LoadingRegistry.unload``."""
    actor = call.actor(Remark.read(body).reason)

    async def ask(parts: Session) -> Reply:
        made = await parts.loading.unload(call.model_name, version, actor, dry_run=dry_run)
        return answer({"loading": loading_document(made), "dry_run": dry_run})

    return await call.run(Bulkhead.WRITE, ask, WRITE_SECONDS)


async def validate(call: ControlCall, version: str, body: bytes) -> Reply:
    """Ask a version's model servers what an agent would, from this proxy, and keep what came of it at agents' servers.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: There is no such version.
        PolicyRefused: Its callers would feel it.
        Overloaded: This process validates another one.
    """
    asked, handler, main = ValidationRequest.read(body), call.handler, asyncio.get_running_loop()
    if handler.is_validating:
        raise Overloaded("this process validates another version")

    async def ask(found: ModelVersion, rows: CaseRows | None, steps: Steps) -> Sequence[StepResult]:
        # Connections belong to one event loop: the one that predictions use.
        asking = handler.validate_version(found, rows, steps)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(asking, main))  # type: ignore[arg-type]  # a coroutine

    async def look(parts: Session) -> Reply:
        from understudy.bootstrap.registering import validated_version as validating  # noqa: PLC0415 - numpy, once

        record = await parts.registry.show_version(call.model_name, version)
        problem = validating.serving_problem(record, while_serving=asked.while_serving)
        if problem is not None:
            raise PolicyRefused(problem, hint="Send while_serving to try its model servers all the same.")
        rows = None if asked.cases is None else CaseRows(asked.cases, is_text=asked.cases_are_text)
        wanted = validating.AskedOfVersion(rows, Steps(asked.robustness, asked.load_seconds))
        findings = await validating.validated_version(parts, record, wanted, ask, call.actor(asked.reason))
        if not findings:
            advice = f"Send cases, robustness or load_seconds for {quote(call.model_name)}."
            raise PolicyRefused("nothing was asked of the version", hint=advice)
        return answer(validation_document(call.model_name, version, findings))

    handler.is_validating = True
    try:
        return await call.run(Bulkhead.WRITE, look, REPORT_SECONDS)
    finally:
        handler.is_validating = False
