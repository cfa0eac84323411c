"""The routes of models and versions in the registry."""

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from understudy.entrypoints.proxy.api.authorization import permitted_models
from understudy.entrypoints.proxy.api.control_calls import (
    NAME_PATTERN,
    Columns,
    DryRun,
    ModelOrAll,
    Paged,
    body_of,
    call_of,
)
from understudy.entrypoints.proxy.api.fastapi_support import Name, response_of
from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.entrypoints.proxy.control import loading, registry
from understudy.entrypoints.proxy.control.version_bodies import MAX_VERSION_BYTES

_VERSION = "/v1/registry/models/{model}/versions/{version}"
USUAL_LOAD_SECONDS = 7_200.0
"""As ``understudy version load`` has it."""
MAX_LOAD_SECONDS = 31_536_000.0
_ENDPOINT = f"{_VERSION}/endpoints/{{target}}"


def add_registry_routes(api: FastAPI) -> None:
    """Add the routes; the application's state is that of the control plane's other ones."""
    _add_reading(api)
    _add_registering(api)
    _add_checking(api)
    _add_endpoints(api)
    _add_loading(api)


def _add_reading(api: FastAPI) -> None:
    @api.get("/v1/registry/models", **CONTROL["list_registered_models"])
    async def list_registered_models(request: Request, page: Paged) -> Response:
        return response_of(await registry.list_models(call_of(request, ""), permitted_models(request.scope), page))

    @api.get("/v1/registry/models/{model}", **CONTROL["get_registered_model"])
    async def get_registered_model(model: Name, request: Request) -> Response:
        return response_of(await registry.show_model(call_of(request, model)))

    @api.get("/v1/registry/versions", **CONTROL["list_all_versions"])
    async def list_all_versions(request: Request, page: Paged, model: ModelOrAll = None) -> Response:
        call = call_of(request, model or "")
        return response_of(await registry.list_versions(call, permitted_models(request.scope), page))

    @api.get("/v1/registry/applied", **CONTROL["list_applied"])
    async def list_applied(request: Request, page: Paged, model: ModelOrAll = None) -> Response:
        call = call_of(request, model or "")
        return response_of(await registry.list_applied(call, permitted_models(request.scope), page))

    @api.get("/v1/registry/models/{model}/versions", **CONTROL["list_versions"])
    async def list_versions(model: Name, request: Request, page: Paged) -> Response:
        return response_of(await registry.list_versions_of(call_of(request, model), page))

    @api.get(_VERSION, **CONTROL["get_version"])
    async def get_version(model: Name, version: Name, request: Request) -> Response:
        return response_of(await registry.show_version(call_of(request, model), version))


def _add_registering(api: FastAPI) -> None:
    @api.post("/v1/registry/models/{model}/versions", **CONTROL["register_version"])
    async def register_version(model: Name, request: Request, *, dry_run: DryRun = False) -> Response:
        body = await body_of(request, MAX_VERSION_BYTES)
        return response_of(await registry.register(call_of(request, model), body, dry_run=dry_run))

    @api.post(f"{_VERSION}:retire", **CONTROL["retire_version"])
    async def retire_version(model: Name, version: Name, request: Request, *, dry_run: DryRun = False) -> Response:
        call, body = call_of(request, model), await body_of(request)
        return response_of(await registry.set_retired(call, version, body, is_retired=True, dry_run=dry_run))

    @api.post(f"{_VERSION}:restore", **CONTROL["restore_version"])
    async def restore_version(model: Name, version: Name, request: Request, *, dry_run: DryRun = False) -> Response:
        call, body = call_of(request, model), await body_of(request)
        return response_of(await registry.set_retired(call, version, body, is_retired=False, dry_run=dry_run))


def _add_checking(api: FastAPI) -> None:
    @api.post(f"{_VERSION}:check", **CONTROL["check_version"])
    async def check_version(
        model: Name,
        version: Name,
        request: Request,
        *,
        against: Annotated[str | None, Query(pattern=NAME_PATTERN, description="By default the champion.")] = None,
        columns: Columns = None,
    ) -> Response:
        return response_of(await registry.check(call_of(request, model), version, against, columns))

    @api.post(f"{_VERSION}:validate", **CONTROL["validate_version"])
    async def validate_version(model: Name, version: Name, request: Request) -> Response:
        body = await body_of(request, MAX_VERSION_BYTES)
        return response_of(await loading.validate(call_of(request, model), version, body))


def _add_endpoints(api: FastAPI) -> None:
    @api.put(_ENDPOINT, **CONTROL["add_endpoint"])
    async def add_endpoint(
        model: Name, version: Name, target: Name, request: Request, *, dry_run: DryRun = False
    ) -> Response:
        call = call_of(request, model)
        return response_of(await registry.set_endpoint(call, version, target, is_there=True, dry_run=dry_run))

    @api.delete(_ENDPOINT, **CONTROL["remove_endpoint"])
    async def remove_endpoint(
        model: Name, version: Name, target: Name, request: Request, *, dry_run: DryRun = False
    ) -> Response:
        call = call_of(request, model)
        return response_of(await registry.set_endpoint(call, version, target, is_there=False, dry_run=dry_run))


def _add_loading(api: FastAPI) -> None:
    @api.get("/v1/registry/servers", **CONTROL["list_servers"])
    async def list_servers(request: Request) -> Response:
        return response_of(await loading.list_servers(call_of(request, "")))

    @api.get(f"{_VERSION}/loading", **CONTROL["get_loading"])
    async def get_loading(model: Name, version: Name, request: Request) -> Response:
        return response_of(await loading.show_loading(call_of(request, model), version))

    @api.post(f"{_VERSION}:load", **CONTROL["load_version"])
    async def load_version(
        model: Name,
        version: Name,
        request: Request,
        *,
        group: Annotated[str | None, Query(pattern=NAME_PATTERN, description="Of servers; by default its own.")] = None,
        seconds: Annotated[
            float, Query(gt=0, le=MAX_LOAD_SECONDS, description="How long, while it has no role.")
        ] = USUAL_LOAD_SECONDS,
        keep: Annotated[bool, Query(description="Until it is unloaded, whatever seconds says.")] = False,
        require_validation: Annotated[
            bool | None, Query(description="Whether its roles need a validation that holds; by default as it was.")
        ] = None,
        replicas: Annotated[
            str | None,
            Query(max_length=10, description="On how many servers: 2, 1..4 by calls, or all; by default as it was."),
        ] = None,
        dry_run: DryRun = False,
    ) -> Response:
        call, body, chosen = call_of(request, model), await body_of(request), None if keep else seconds
        reply = await loading.load(
            call,
            version,
            body,
            group=group,
            seconds=chosen,
            requires_validation=require_validation,
            replicas=replicas,
            dry_run=dry_run,
        )
        return response_of(reply)

    @api.post(f"{_VERSION}:unload", **CONTROL["unload_version"])
    async def unload_version(model: Name, version: Name, request: Request, *, dry_run: DryRun = False) -> Response:
        call, body = call_of(request, model), await body_of(request)
        return response_of(await loading.unload(call, version, body, dry_run=dry_run))
