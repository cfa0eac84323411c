"""The routes of A/B tests, beside their report."""

from typing import Annotated

from fastapi import FastAPI, Query, Request, Response

from understudy.entrypoints.proxy.api.authorization import permitted_models
from understudy.entrypoints.proxy.api.control_calls import NAME_PATTERN, Columns, ModelOrAll, body_of, call_of
from understudy.entrypoints.proxy.api.fastapi_support import Name, response_of
from understudy.entrypoints.proxy.api.openapi.control import CONTROL
from understudy.entrypoints.proxy.control import experiments
from understudy.errors import ScopeMissing
from understudy.experiments.declared_rows import MAX_LOOKS

_LISTED, _ALL_LISTED = 100, 1_000


def add_experiment_routes(api: FastAPI) -> None:
    """Add the routes; the application's state is that of the control plane's other ones."""

    @api.post("/v1/models/{model}/experiments", **CONTROL["declare_test"])
    async def declare_test(model: Name, request: Request, *, columns: Columns = None) -> Response:
        call, body = call_of(request, model), await body_of(request)
        return response_of(await experiments.ask_report(call, body, columns, declares=True))

    @api.post("/v1/models/{model}/reports/ab", **CONTROL["ask_report_ab"])
    async def ask_report_ab(model: Name, request: Request, *, columns: Columns = None) -> Response:
        call, body = call_of(request, model), await body_of(request)
        return response_of(await experiments.ask_report(call, body, columns, declares=False))

    @api.get("/v1/models/{model}/experiments", **CONTROL["list_tests"])
    async def list_tests(
        model: Name, request: Request, limit: Annotated[int, Query(ge=1, le=_LISTED)] = 20
    ) -> Response:
        return response_of(await experiments.list_tests(call_of(request, model), limit))

    @api.get("/v1/experiments", **CONTROL["list_all_tests"])
    async def list_all_tests(
        request: Request,
        *,
        model: ModelOrAll = None,
        limit: Annotated[int, Query(ge=1, le=_ALL_LISTED)] = 20,
        columns: Columns = None,
        utc: Annotated[bool, Query(description="Moments of the text in UTC instead of how long ago.")] = False,
    ) -> Response:
        permitted = permitted_models(request.scope)
        if permitted is not None and model is not None and model not in permitted:
            raise ScopeMissing("this needs a key with scope 'read'")
        call = call_of(request, model or "")
        return response_of(await experiments.show_tests(call, limit, permitted, columns, utc=utc))

    @api.post("/v1/models/{model}/experiments/{test_id}:stop", **CONTROL["stop_test"])
    async def stop_test(model: Name, test_id: str, request: Request, *, columns: Columns = None) -> Response:
        return response_of(await experiments.stop_test(call_of(request, model), test_id, columns))

    @api.get("/v1/models/{model}/reports/ab-plan", **CONTROL["plan_test"])
    async def plan_test(
        model: Name,
        request: Request,
        *,
        metric: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
        effect: Annotated[str | None, Query(max_length=50)] = None,
        within_seconds: Annotated[float, Query(gt=0, le=34_560_000)] = experiments.WITHIN_SECONDS,
        per_call: bool = False,
        looks: Annotated[int, Query(ge=1, le=MAX_LOOKS)] = 5,
        version: Annotated[str | None, Query(pattern=NAME_PATTERN)] = None,
        columns: Columns = None,
    ) -> Response:
        asked = experiments.SizesAsked(metric, effect, within_seconds, per_call, looks, version)
        return response_of(await experiments.plan_test(call_of(request, model), asked, columns))
