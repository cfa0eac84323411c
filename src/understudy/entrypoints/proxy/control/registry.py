"""Calls about models and versions: list and show them, register a version, give it servers, retire it, check it.

Each also raises ``RegistryUnavailable``, ``MigrationNeeded``, ``Overloaded`` and ``DeadlineExceeded``.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from understudy.bootstrap.session import Session
from understudy.core.routing.policy import ModelVersion
from understudy.core.schema.input_diff import NO_DIFFERENCES, input_differences
from understudy.entrypoints.documents.policies import applied_document, contradiction_document, model_document
from understudy.entrypoints.documents.versions import change_document, registered_document, version_document
from understudy.entrypoints.proxy.control.bodies import Remark
from understudy.entrypoints.proxy.control.handler import (
    READ_SECONDS,
    REPORT_SECONDS,
    WRITE_SECONDS,
    Bulkhead,
    ControlCall,
    answer,
)
from understudy.entrypoints.proxy.control.pages import MAX_PAGE, NEXT, PageAsked, cut, page_of
from understudy.entrypoints.proxy.control.version_bodies import VersionRegistration
from understudy.entrypoints.proxy.messages.reply import Reply
from understudy.ports.registry.registry import VersionPage, VersionRecord
from understudy.registry.changes import champion_of, register_version, same_calls_of
from understudy.registry.policy_files import explained_contradictions

if TYPE_CHECKING:
    from understudy.entrypoints.cli.version.check import Tried


async def list_models(call: ControlCall, permitted: frozenset[str] | None, asked: PageAsked) -> Reply:
    """Return a page of the registry's models, also without a policy; ``permitted`` are a key's, ``None``: all."""

    async def read(parts: Session) -> Reply:
        found = await parts.registry.list_models()
        shown = [model for model in found if permitted is None or model.model_name in permitted]
        page, cursor = page_of(shown, lambda model: model.model_name, asked)
        return answer({"models": [model_document(model) for model in page], NEXT: cursor})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def show_model(call: ControlCall) -> Reply:
    """Return a model with its versions, those that are not loaded, and the file that its policy is from.

    Of more than a page of versions the rest is at ``/versions``, after ``versions_next_cursor``.

    Raises:
        NotRegistered: There is no such model.
    """

    async def read(parts: Session) -> Reply:
        record = await parts.registry.show_model(call.model_name)
        found = await parts.registry.list_versions(call.model_name, only=VersionPage(at_most=MAX_PAGE + 1))
        versions, cursor = cut(found, lambda version: str(version.id), MAX_PAGE)
        missing = await parts.loading.list_missing(call.model_name)
        document = {
            **model_document(record),
            "versions": [version_document(version) for version in versions],
            "versions_next_cursor": cursor,
            "not_loaded": [one._asdict() for one in missing],
            "applied": None,
        }
        applied = next(iter(await parts.registry.list_applied(call.model_name)), None)
        if applied is not None:
            policy = record.policy
            other = [] if policy is None else await explained_contradictions(parts.registry, applied, policy)
            contradictions = [contradiction_document(one) for one in other]
            document["applied"] = {**applied_document(applied), "contradictions": contradictions}
        return answer({"model": document})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def list_applied(call: ControlCall, permitted: frozenset[str] | None, asked: PageAsked) -> Reply:
    """Return a page of the files that policies were last applied from, of a model or of all that the key may read."""

    async def read(parts: Session) -> Reply:
        found = await parts.registry.list_applied(call.model_name or None)
        shown = [one for one in found if permitted is None or one.model_name in permitted]
        page, cursor = page_of(shown, lambda one: one.model_name, asked)
        return answer({"applied": [one._asdict() for one in page], NEXT: cursor})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def list_versions(call: ControlCall, permitted: frozenset[str] | None, asked: PageAsked) -> Reply:
    """Return a page of the versions of all models that the key may read, or of one; an unknown one has none.

    Raises:
        QueryInvalid: The cursor is none.
    """
    only = VersionPage(asked.after_id, asked.limit + 1, permitted)

    async def read(parts: Session) -> Reply:
        return answer(_versions(await parts.registry.list_versions(call.model_name or None, only=only), asked))

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def list_versions_of(call: ControlCall, asked: PageAsked) -> Reply:
    """Return a page of a model's versions, oldest first.

    Raises:
        NotRegistered: There is no such model.
        QueryInvalid: The cursor is none.
    """
    only = VersionPage(asked.after_id, asked.limit + 1)

    async def read(parts: Session) -> Reply:
        await parts.registry.show_model(call.model_name)
        return answer(_versions(await parts.registry.list_versions(call.model_name, only=only), asked))

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


def _versions(found: Sequence[VersionRecord], asked: PageAsked) -> dict[str, Any]:
    page, cursor = cut(found, lambda version: str(version.id), asked.limit)
    return {"versions": [version_document(version) for version in page], NEXT: cursor}


async def show_version(call: ControlCall, version: str) -> Reply:
    """Return one version.

    Raises:
        NotRegistered: There is no such version.
    """

    async def read(parts: Session) -> Reply:
        return answer({"version": version_document(await parts.registry.show_version(call.model_name, version))})

    return await call.run(Bulkhead.READ, read, READ_SECONDS)


async def register(call: ControlCall, body: bytes, *, dry_run: bool) -> Reply:
    """Register a version as staging; with ``dry_run`` only try it.

    Raises:
        MalformedBody, BodyInvalid: The body.
        SchemaInvalid: A schema of it cannot be compiled.
        AlreadyRegistered: The model has a version of this name.
        VersionInUse: It was to be replaced, and was deployed or called, or agents have it loaded.
        PolicyRefused: The database refuses a value of it.
    """

    async def store(parts: Session) -> Reply:
        # Here, in a thread of the control plane: schemas of 1 MiB take 30 ms to be read.
        asked = VersionRegistration.read(body)
        new = asked.version_of(call.model_name)
        actor = call.actor(asked.reason)
        made = await register_version(parts.registry, new, actor, replace=asked.replace, dry_run=dry_run)
        champion = await champion_of(parts.registry, call.model_name)
        schema = None if champion is None else champion.input_schema
        found = NO_DIFFERENCES if schema is None else input_differences(schema, made.input_schema)
        same = await same_calls_of(parts.registry, made)
        return answer(registered_document(made, found, same, dry_run=dry_run), 200 if dry_run else 201)

    return await call.run(Bulkhead.WRITE, store, WRITE_SECONDS)


async def check(call: ControlCall, version: str, against: str | None, columns: int | None) -> Reply:
    """Ask a version's model servers what callers would, from this proxy, as ``understudy version check`` does.

    Raises:
        NotRegistered: There is no such version, or none to compare it with.
    """
    main = asyncio.get_running_loop()

    async def try_it(found: ModelVersion) -> "Tried":
        # gRPC connections belong to one event loop: the one that predictions use.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_tried(call, found), main))

    async def look(parts: Session) -> Reply:
        # Imported here, in a thread of the control plane: it takes 0.1 s once, which no prediction waits for.
        from understudy.entrypoints.cli.shared.screens import Drawn, drawn_document  # noqa: PLC0415 - rich
        from understudy.entrypoints.cli.version.check import asked_of, checked, drawn  # noqa: PLC0415 - as above

        async def draw() -> Drawn:
            asked = await asked_of(parts, call.model_name, version, against)
            return drawn(await checked(asked, try_it))

        document = (await draw()).document if columns is None else await drawn_document(draw, columns)
        return answer(document)

    return await call.run(Bulkhead.WRITE, look, REPORT_SECONDS)


async def _tried(call: ControlCall, version: ModelVersion) -> Any:
    return await call.handler.try_version(version)


async def set_retired(call: ControlCall, version: str, body: bytes, *, is_retired: bool, dry_run: bool) -> Reply:
    """Retire a version, or make a retired one staging again; the answer says when that changed nothing.

    Raises:
        MalformedBody, BodyInvalid: The body.
        NotRegistered: There is no such version.
        PolicyRefused: It has a role, or a part in an open rollout.
    """
    actor = call.actor(Remark.read(body).reason)

    async def change(parts: Session) -> Reply:
        changed = await parts.registry.set_retired(
            call.model_name, version, actor, is_retired=is_retired, dry_run=dry_run
        )
        return answer(change_document(changed, dry_run=dry_run))

    return await call.run(Bulkhead.WRITE, change, WRITE_SECONDS)


async def set_endpoint(call: ControlCall, version: str, target: str, *, is_there: bool, dry_run: bool) -> Reply:
    """Give a version a model server, or take one away.

    Raises:
        NotRegistered: There is no such version, or it has no such endpoint to take away.
        PolicyRefused: The database refuses the address, or it is the last one of a version with a role.
    """

    async def change(parts: Session) -> Reply:
        registry, actor = parts.registry, call.actor(None)
        made: VersionRecord
        if is_there:
            made = await registry.add_endpoint(call.model_name, version, target, actor, dry_run=dry_run)
        else:
            made = await registry.remove_endpoint(call.model_name, version, target, actor, dry_run=dry_run)
        return answer({"version": version_document(made), "dry_run": dry_run})

    return await call.run(Bulkhead.WRITE, change, WRITE_SECONDS)
