"""The proxy's ASGI application: FastAPI, and around it the predict route and the middleware."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from functools import cache, partial
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from understudy import __version__
from understudy.adapters.randomness import random_hex
from understudy.background.tasks import end_tasks, run_forever
from understudy.bootstrap.proxy import Parts, open_parts
from understudy.core.routing.policy import PolicySnapshot, serving_policy_of
from understudy.core.routing.rate_limits import Allowance
from understudy.core.routing.route import assignment
from understudy.core.schema.typed_decoder import MAX_ENTITY_ID
from understudy.entrypoints.metrics_port import metrics_port
from understudy.entrypoints.proxy.access.caller_access import CallerAccess
from understudy.entrypoints.proxy.api.authorization import AuthorizationMiddleware, methods_of_path, permitted_models
from understudy.entrypoints.proxy.api.control_calls import call_of as control_call_of
from understudy.entrypoints.proxy.api.control_routes import add_control_routes
from understudy.entrypoints.proxy.api.cors import Cors
from understudy.entrypoints.proxy.api.dialect_routes import DialectRoutes, is_leaving
from understudy.entrypoints.proxy.api.docs_page import HEADERS as DOCS_HEADERS
from understudy.entrypoints.proxy.api.docs_page import docs_page
from understudy.entrypoints.proxy.api.fastapi_support import Name, response_of
from understudy.entrypoints.proxy.api.limits import body_budget, overload_manager
from understudy.entrypoints.proxy.api.openapi.calls import BATCH, FORCED, OUTCOMES, PREDICT, RANK, RANK_FORCED, READ
from understudy.entrypoints.proxy.api.openapi.document import openapi_document, with_dialects
from understudy.entrypoints.proxy.api.predict_route import App, PredictRoute, http_call, read_body
from understudy.entrypoints.proxy.api.request_id import RequestIdMiddleware
from understudy.entrypoints.proxy.control.handler import ControlHandler
from understudy.entrypoints.proxy.control.outcomes import KnownNames, ask_names, receive_outcomes
from understudy.entrypoints.proxy.control.read_models import DRAINING_DETAIL, model_detail, model_summary, readiness
from understudy.entrypoints.proxy.dialects.catalogue import not_retired
from understudy.entrypoints.proxy.dialects.dialect import PlainDialect
from understudy.entrypoints.proxy.dialects.handler import DialectHandler, Rules
from understudy.entrypoints.proxy.dialects.kserve_v1 import KServeV1, status_document
from understudy.entrypoints.proxy.dialects.open_inference import OpenInference
from understudy.entrypoints.proxy.dialects.whole_calls import WholeCalls
from understudy.entrypoints.proxy.messages.problems import STATUS
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.entrypoints.proxy.overload.body_budget import BODY_BUDGET, BodyBudget
from understudy.entrypoints.proxy.overload.overload import OVERLOAD, OverloadManager
from understudy.entrypoints.proxy.predict.fast_path import DIALECT_VERBS, FAST_PATH, FastPath
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.entrypoints.proxy.server.graceful_shutdown import BESIDE
from understudy.errors import (
    EntityIdInvalid,
    InternalFault,
    MethodNotAllowed,
    PolicyNotLoaded,
    QueryInvalid,
    UnderstudyError,
    UnknownRoute,
    Violation,
    leaf_errors,
)
from understudy.serving.routing.rate_limits import RateLimiter
from understudy.serving.upstream.champion_health import NONE_ANSWERS
from understudy.serving.upstream.version_readiness import VersionReadiness
from understudy.settings import Settings, parse_origins

LAST_CALLS_SECONDS = 1.0
THREADS = 2
"""Threads that parse long bodies and do other work beside the event loop. They share the GIL: more of them finish
nothing sooner and delay the event loop (measured: 40 bodies of 1 MiB at once, ``/livez`` after 0.6 s)."""
OpenParts = Callable[[Settings], AbstractAsyncContextManager[Parts]]


class Proxy:
    """What the application's lifespan opens. Parts and handlers are there before the first request."""

    parts: Parts
    handler: PredictHandler
    dialects: DialectHandler
    readiness: VersionReadiness

    def __init__(
        self,
        settings: Settings,
        opener: OpenParts,
        on_open: Callable[[], None],
        grpc_socket: socket.socket | None = None,
    ) -> None:
        self.settings = settings
        self._opener = opener
        self._on_open = on_open
        self._grpc_socket = grpc_socket
        self.new_id: Callable[[], str] = random_hex(16).__next__
        self.outcome_names = KnownNames()

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        """Open the parts before the first request, close them after the last; yield what connections need of them."""
        settings = self.settings
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="beside")
        asyncio.get_running_loop().set_default_executor(threads)
        async with (
            self._opener(settings) as parts,
            metrics_port(settings.metrics_host, settings.metrics_port, parts.telemetry.exposition),
        ):
            handler = PredictHandler(
                parts.predictor,
                self._access(parts),
                telemetry=parts.telemetry,
                now=time.monotonic,
                version_headers=settings.version_headers,
                tracer=parts.tracer,
            )
            parts.in_flight = lambda: handler.in_flight
            self.parts, self.handler = parts, handler
            self.readiness = VersionReadiness(parts.backends, time.monotonic)
            self.dialects = DialectHandler(
                handler,
                parts.predictor,
                snapshot=self.snapshot,
                telemetry=parts.telemetry,
                rules=Rules(
                    settings.without_entity == "per_call", settings.named_version == "forced", settings.body_limit_bytes
                ),
                now=time.monotonic,
                new_id=self.new_id,
            )
            with closing(ControlHandler(parts.control, handler.access.actor)) as app.state.control:
                overload = overload_manager(settings, parts.telemetry)
                budget = body_budget(settings, overload)
                watching = asyncio.create_task(run_forever("overload", overload.run, parts.telemetry))
                async with self._grpc_port(overload, budget) as beside:
                    self._on_open()
                    yield {
                        FAST_PATH: self._fast_path(handler, parts),
                        OVERLOAD: overload,
                        BODY_BUDGET: budget,
                        **beside,
                    }
                await _last_calls(handler)
                await end_tasks([watching])
                await self.readiness.close()

    def _access(self, parts: Parts) -> CallerAccess:
        settings = self.settings
        usual = Allowance(settings.key_calls_per_second, settings.key_bytes_per_second)
        return CallerAccess(
            snapshot=self.snapshot,
            needs_key=settings.needs_key,
            now=time.monotonic,
            rate_limiter=RateLimiter(usual, workers=settings.workers),
            tokens=parts.tokens,
        )

    def _fast_path(self, handler: PredictHandler, parts: Parts) -> FastPath:
        settings = self.settings
        dialects: dict[str, PlainDialect[Any]] = dict(zip(DIALECT_VERBS, (KServeV1(), OpenInference()), strict=True))
        return FastPath(
            handler,
            self.new_id,
            settings.body_limit_bytes,
            dialects=WholeCalls(self.dialects, parts.predictor, dialects, now=time.monotonic, new_id=self.new_id),
            answers_pages=not parse_origins(settings.cors_origins or ""),
        )

    async def health(self, *, is_leaving: bool) -> tuple[bool, dict[str, Any]]:
        """Return whether the proxy can answer calls, and its health as a document; one that leaves takes no further."""
        if is_leaving:
            return False, DRAINING_DETAIL
        feed = self.parts.feed
        snapshot = feed.snapshot
        found = NONE_ANSWERS if snapshot is None else await self.parts.champions.check(snapshot)
        return readiness(snapshot, found, degraded=feed.degraded, age_seconds=feed.age_seconds)

    @asynccontextmanager
    async def _grpc_port(self, overload: OverloadManager, budget: BodyBudget) -> AsyncIterator[dict[str, Any]]:
        """Listen for gRPC's calls, if a port is set for them; yield what the server needs to know to end that."""
        settings = self.settings
        if not settings.grpc_port:
            yield {}
            return
        # Late: a proxy that does not listen for gRPC's calls does without its messages.
        from understudy.entrypoints.proxy.api.grpc_port import grpc_port  # noqa: PLC0415

        port = grpc_port(settings, self, overload, budget, self._grpc_socket)
        await port.start()
        try:
            yield {BESIDE: port}
        finally:
            await port.stop(settings.drain_seconds)

    def snapshot(self) -> PolicySnapshot | None:
        """Return the policies of this moment."""
        return self.parts.feed.snapshot


async def _last_calls(handler: PredictHandler) -> None:
    """Wait for calls whose callers have disconnected: no connection awaits them, but their log rows are still due."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + LAST_CALLS_SECONDS
    while handler.in_flight and clock() < give_up:  # noqa: ASYNC110 - asked once in the life of a process
        await asyncio.sleep(0.01)


def create_app(
    settings: Settings | None = None,
    opener: OpenParts = open_parts,
    on_open: Callable[[], None] = lambda: None,
    grpc_socket: socket.socket | None = None,
) -> App:
    """Return the ASGI application; nothing is opened before its lifespan starts.

    Args:
        settings: By default the environment's.
        opener: Opens the parts.
        on_open: Called once the parts are open, before the first request.
        grpc_socket: On which all workers take gRPC's calls; ``None``: the process is alone.
    """
    settings = settings or Settings()
    proxy = Proxy(settings, opener, on_open, grpc_socket)
    api = create_api(proxy)

    def handler() -> PredictHandler:
        return proxy.handler

    authorized = AuthorizationMiddleware(api, handler)
    dialects = DialectRoutes(authorized, proxy, settings)
    app = RequestIdMiddleware(PredictRoute(dialects, handler, settings), handler, proxy.new_id)
    origins = parse_origins(settings.cors_origins or "")
    return Cors(app, origins) if origins else app


def create_api(proxy: Proxy) -> FastAPI:
    """Return the FastAPI application: every route, documented."""
    settings = proxy.settings
    api = FastAPI(
        title="Understudy",
        version=__version__,
        summary="One predict call in; a champion or a challenger answers; every answer is logged.",
        lifespan=proxy.lifespan,
        # FastAPI's own page loads scripts from a CDN, and FastAPI serialises its document anew for each request.
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,  # it would redirect callers to the host that their own Host header names
        # Our own spans hold nothing that callers send; FastAPI's would, in their exceptions.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    _add_call_routes(api, proxy)
    _add_read_routes(api, proxy)
    api.state.settings = settings
    add_control_routes(api)
    _add_health_routes(api, proxy)
    if settings.shows_docs:
        _add_docs_routes(api)
    _add_problem_handlers(api, proxy)
    return api


def _add_call_routes(api: FastAPI, proxy: Proxy) -> None:
    settings = proxy.settings

    def call_of(request: Request) -> HttpCall:
        return http_call(request.scope, request.receive, settings)

    @api.post("/v1/models/{model}/predict", **PREDICT)
    async def predict(model: Name, request: Request) -> Response:
        return response_of(await proxy.handler.predict(call_of(request), model))

    @api.post("/v1/models/{model}/predict:batch", **BATCH)
    async def predict_batch(model: Name, request: Request) -> Response:
        return response_of(await proxy.handler.predict_batch(call_of(request), model))

    @api.post("/v1/models/{model}/versions/{version}/predict", **FORCED)
    async def predict_forced(model: Name, version: Name, request: Request) -> Response:
        return response_of(await proxy.handler.predict(call_of(request), model, forced_version=version))

    def rank_call_of(request: Request) -> HttpCall:
        call, limit_bytes = call_of(request), settings.rank_body_limit_bytes
        read = partial(read_body, request.receive, limit_bytes, settings.receive_seconds, request.scope)
        return call._replace(read_body=read)

    @api.post("/v1/models/{model}/rank", **RANK)
    async def rank(model: Name, request: Request) -> Response:
        return response_of(await proxy.handler.rank(rank_call_of(request), model))

    @api.post("/v1/models/{model}/versions/{version}/rank", **RANK_FORCED)
    async def rank_forced(model: Name, version: Name, request: Request) -> Response:
        return response_of(await proxy.handler.rank(rank_call_of(request), model, forced_version=version))

    @api.post("/v1/outcomes", **OUTCOMES)
    async def add_outcomes(request: Request) -> Response:
        reply = await receive_outcomes(
            call_of(request),
            proxy.parts.outcomes,
            proxy.handler.body_pool,
            permitted_models(request.scope),
            names=proxy.outcome_names,
            ask=ask_names(control_call_of(request, "")),
        )
        return response_of(reply)


def _add_read_routes(api: FastAPI, proxy: Proxy) -> None:
    @api.get("/v1/models", **READ["list_models"])
    async def list_models(
        request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100, cursor: str = ""
    ) -> Response:
        snapshot = proxy.snapshot()
        if snapshot is None:
            raise PolicyNotLoaded
        permitted = permitted_models(request.scope)
        known = snapshot.policies if permitted is None else permitted & snapshot.policies.keys()
        names = sorted(name for name in known if name > cursor)
        page = names[:limit]
        models = [model_summary(snapshot.policies[name]) for name in page]
        return _json({"models": models, "next_cursor": page[-1] if len(names) > limit else None})

    @api.get("/v1/models/{model}", **READ["get_model"])
    async def get_model(model: Name) -> Response:
        policy = serving_policy_of(proxy.snapshot(), model)
        # KServe's and TensorFlow Serving's clients ask this path too: one document has what each of them reads.
        states = status_document(policy, not_retired(policy))
        ready = proxy.readiness.last_known(policy.champion)
        return _json({**model_detail(policy), "name": model, "ready": ready, "model_version_status": states})

    @api.get("/v1/models/{model}/assignment", **READ["get_assignment"])
    async def get_assignment(model: Name, entity_id: str = "", category: str | None = None) -> Response:
        if not 0 < len(entity_id) <= MAX_ENTITY_ID:
            detail = f"expected 1 to {MAX_ENTITY_ID} characters in the query"
            raise EntityIdInvalid.naming(Violation("/entity_id", detail))
        return _json(assignment(serving_policy_of(proxy.snapshot(), model), entity_id, category)._asdict())

    @api.get("/problems/{code}", **READ["get_problem"])
    async def get_problem(code: str) -> Response:
        for error in leaf_errors():
            if error.code == code:
                return _json({"code": code, "title": error.title, "status": STATUS[error], "next": error.hint})
        raise UnknownRoute


def _add_health_routes(api: FastAPI, proxy: Proxy) -> None:
    @api.get("/livez", **READ["livez"])
    @api.head("/livez", include_in_schema=False)
    @api.get("/startupz", include_in_schema=False)
    async def livez() -> Response:
        return _json({"status": "alive", "version": __version__})

    @api.get("/readyz", **READ["readyz"])
    @api.head("/readyz", include_in_schema=False)
    async def readyz(request: Request) -> Response:
        ready, detail = await proxy.health(is_leaving=is_leaving(request.scope))
        return _json(detail, 200 if ready else 503)


def _add_docs_routes(api: FastAPI) -> None:
    @cache
    def document() -> bytes:
        return orjson.dumps(openapi_document(api.openapi()))

    @cache
    def page() -> bytes:
        return docs_page(with_dialects(api.openapi()))

    @api.get("/openapi.json", include_in_schema=False)
    @api.head("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return response_of(Reply(200, [JSON], document()))

    @api.get("/docs", include_in_schema=False)
    @api.head("/docs", include_in_schema=False)
    async def docs() -> Response:
        return response_of(Reply(200, list(DOCS_HEADERS), page()))


def _add_problem_handlers(api: FastAPI, proxy: Proxy) -> None:
    def answer(request: Request, problem: UnderstudyError) -> Response:
        fields, model_name = dict(request.scope["headers"]), request.path_params.get("model", "")
        explained = proxy.handler.access.explained(problem, fields, model_name)
        return response_of(proxy.handler.refuse(explained, request.scope["path"]))

    @api.exception_handler(UnderstudyError)
    async def refused(request: Request, problem: UnderstudyError) -> Response:
        return answer(request, problem)

    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> Response:
        found = (Violation("/" + "/".join(map(str, e["loc"])), str(e["msg"])) for e in problem.errors())
        return answer(request, QueryInvalid.naming(*found))

    @api.exception_handler(Exception)
    async def failed(request: Request, _problem: Exception) -> Response:
        # Starlette raises it again once this is sent, and the request-id middleware logs it.
        return answer(request, InternalFault())

    @api.exception_handler(HTTPException)
    async def unmatched(request: Request, problem: HTTPException) -> Response:
        if problem.status_code != 405:  # noqa: PLR2004 - the other one that routing raises is 404
            return answer(request, UnknownRoute())
        response = answer(request, MethodNotAllowed())
        response.headers["allow"] = ", ".join(methods_of_path(request.scope["path"]))
        return response


def _json(content: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(content), status, media_type="application/json")
