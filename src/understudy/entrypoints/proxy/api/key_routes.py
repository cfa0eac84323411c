"""The routes of keys."""

from fastapi import FastAPI, Request, Response

from understudy.entrypoints.proxy.api.authorization import own_key
from understudy.entrypoints.proxy.api.control_calls import Paged, body_of, call_of
from understudy.entrypoints.proxy.api.fastapi_support import Name, response_of
from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.entrypoints.proxy.control import keys


def add_key_routes(api: FastAPI) -> None:
    """Add the routes; the application's state is that of the control plane's other ones."""

    @api.get("/v1/keys", **CONTROL["list_keys"])
    async def list_keys(request: Request, page: Paged) -> Response:
        return response_of(await keys.list_keys(call_of(request, ""), page))

    @api.post("/v1/keys", **CONTROL["create_key"])
    async def create_key(request: Request) -> Response:
        call, body = call_of(request, ""), await body_of(request)
        return response_of(await keys.make_key(call, body, own_key(request.scope)))

    @api.post("/v1/keys/{key_id}:revoke", **CONTROL["revoke_key"])
    async def revoke_key(key_id: Name, request: Request) -> Response:
        return response_of(await keys.revoke_key(call_of(request, ""), key_id, own_key(request.scope)))
