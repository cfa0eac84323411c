"""Calls about what agents load: the model servers, and a version's loading.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

from understudy.bootstrap.session import Session
from understudy.entrypoints.documents.loading import loading_document
from understudy.entrypoints.proxy.control.bodies import Remark
from understudy.entrypoints.proxy.control.handler import READ_SECONDS, WRITE_SECONDS, Bulkhead, ControlCall, answer
from understudy.entrypoints.proxy.messages.reply import Reply


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
    dry_run: bool,
) -> Reply:
    """Have agents load a version, for so many seconds or for good; raises as ``LoadingRegistry.load``."""
    actor = call.actor(Remark.read(body).reason)

    async def ask(parts: Session) -> Reply:
        made = await parts.loading.load(
            call.model_name,
            version,
            actor,
            group_name=group,
            seconds=seconds,
            requires_validation=requires_validation,
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
