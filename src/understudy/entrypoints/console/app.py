"""The console's application: every route, and what becomes of an error."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from understudy.background.tasks import end_tasks
from understudy.bootstrap.console import ConsoleParts, open_console
from understudy.entrypoints.console.access.guard import Guard
from understudy.entrypoints.console.as_json import PageResponse, as_json, wants_json
from understudy.entrypoints.console.connections import admitting, max_streams
from understudy.entrypoints.console.console import Console
from understudy.entrypoints.console.pages.acts import ask, carry_out
from understudy.entrypoints.console.pages.audit import show_audit
from understudy.entrypoints.console.pages.charts import live_charts
from understudy.entrypoints.console.pages.experiments import (
    ask_about_test,
    ask_declare,
    carry_out_about_test,
    carry_out_declare,
    show_declare,
    show_experiment,
    show_experiments,
)
from understudy.entrypoints.console.pages.health import (
    live_health,
    live_trouble,
    live_trouble_of_model,
    show_health,
)
from understudy.entrypoints.console.pages.login import show_login, sign_in, sign_out
from understudy.entrypoints.console.pages.models import live_models, show_model, show_models, stream_models
from understudy.entrypoints.console.pages.policies import (
    ask_change,
    ask_restore,
    carry_out_change,
    carry_out_restore,
    show_policy,
)
from understudy.entrypoints.console.pages.predictions import find, show_entity, show_prediction
from understudy.entrypoints.console.pages.reports import show_drift, show_shadow, show_versions
from understudy.entrypoints.console.pages.rollouts import live_rollout, live_story, show_rollout, stream_rollout
from understudy.entrypoints.console.pages.starts import ask_start, carry_out_start, show_start
from understudy.entrypoints.console.pages.verdicts import show_verdicts
from understudy.entrypoints.console.pages.version_acts import ask_about_version, carry_out_about_version
from understudy.entrypoints.console.streams.hearing import hearing
from understudy.entrypoints.console.streams.watches import WATCHES, Watches
from understudy.entrypoints.console.views.links import OF_VERSIONS
from understudy.entrypoints.proxy.overload.overload import OVERLOAD
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM, LOCAL_NAMES, HeadRules
from understudy.errors import InternalFault, MethodNotAllowed, UnderstudyError, UnknownRoute
from understudy.settings import Settings, parse_host_names

Opener = Callable[[Settings], AbstractAsyncContextManager[ConsoleParts]]
Handler = Callable[[Console, Request], Awaitable[Response]]
_NOT_ALLOWED = 405
KEPT_FOR_EVER = "public, max-age=31536000, immutable"
_ON_VERSION = (("GET", ask_about_version), ("POST", carry_out_about_version))
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/", show_models),
    ("GET", "/live/models", live_models),
    ("GET", "/live/models/stream", stream_models),
    ("GET", "/models/{model}", show_model),
    ("GET", "/models/{model}/rollouts/{rollout}", show_rollout),
    ("GET", "/live/models/{model}/rollouts/{rollout}", live_rollout),
    ("GET", "/live/models/{model}/rollouts/{rollout}/charts", live_charts),
    ("GET", "/live/models/{model}/rollouts/{rollout}/story", live_story),
    ("GET", "/live/models/{model}/rollouts/{rollout}/stream", stream_rollout),
    ("GET", "/models/{model}/rollouts/{rollout}/verdicts", show_verdicts),
    ("GET", "/models/{model}/policy", show_policy),
    ("GET", "/models/{model}/acts/set", ask_change),
    ("POST", "/models/{model}/acts/set", carry_out_change),
    ("GET", "/health", show_health),
    ("GET", "/live/health", live_health),
    ("GET", "/live/trouble", live_trouble),
    ("GET", "/live/models/{model}/trouble", live_trouble_of_model),
    ("GET", "/models/{model}/audit", show_audit),
    ("GET", "/models/{model}/start", show_start),
    ("GET", "/models/{model}/acts/start", ask_start),
    ("POST", "/models/{model}/acts/start", carry_out_start),
    ("GET", "/models/{model}/acts/restore", ask_restore),
    ("POST", "/models/{model}/acts/restore", carry_out_restore),
    ("GET", "/models/{model}/acts/declare", ask_declare),
    ("POST", "/models/{model}/acts/declare", carry_out_declare),
    ("GET", "/models/{model}/acts/stop", ask_about_test),
    ("POST", "/models/{model}/acts/stop", carry_out_about_test),
    ("GET", "/models/{model}/acts/take", ask_about_test),
    ("POST", "/models/{model}/acts/take", carry_out_about_test),
    *((method, f"/models/{{model}}/acts/{act}", handler) for act in OF_VERSIONS for method, handler in _ON_VERSION),
    ("GET", "/models/{model}/acts/{act}", ask),
    ("POST", "/models/{model}/acts/{act}", carry_out),
    ("GET", "/models/{model}/entities", show_entity),
    ("GET", "/models/{model}/entities/{entity}", show_entity),
    ("GET", "/models/{model}/versions", show_versions),
    ("GET", "/models/{model}/experiments", show_experiments),
    ("GET", "/models/{model}/experiments/new", show_declare),
    ("GET", "/models/{model}/experiments/{test}", show_experiment),
    ("GET", "/models/{model}/drift", show_drift),
    ("GET", "/models/{model}/shadow", show_shadow),
    ("GET", "/predictions/{prediction}", show_prediction),
    ("GET", "/find", find),
    ("GET", "/login", show_login),
    ("POST", "/login", sign_in),
    ("POST", "/logout", sign_out),
)
"""Every page; each but the login asks for a session, and every POST for its token."""


def create_app(settings: Settings, opener: Opener = open_console) -> ASGIApp:
    """Return the ASGI application; nothing is opened before its lifespan starts."""
    console = Console(settings)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[dict[str, Any]]:
        watches = Watches(max_streams(settings))
        async with (
            opener(settings) as parts,
            admitting(settings) as overload,
            hearing(parts.listen, watches),
            _preparing(console),
        ):
            console.open(parts, watches)
            yield {OVERLOAD: overload, WATCHES: watches}

    routes = [
        Route(path, partial(_handled, console, handler), methods=[method])
        for method, path, handler in ROUTES
        if not (settings.console_read_only and is_act(path))
    ]
    routes += [Route("/livez", _livez), Route("/static/{digest}/{name}", partial(_static, console))]
    app = Starlette(routes=routes, lifespan=lifespan)
    app.router.redirect_slashes = False
    app.add_exception_handler(HTTPException, partial(_unknown, console))
    app.add_exception_handler(Exception, partial(_fault, console))
    return Guard(app, host_rules(settings))


@asynccontextmanager
async def _preparing(console: Console) -> AsyncIterator[None]:
    """Have what first visitors would wait for done beside the event loop, while the context is open."""
    task = asyncio.create_task(asyncio.to_thread(console.prepare))
    try:
        yield
    finally:
        await end_tasks([task])


def is_act(path: str) -> bool:
    """Whether a page asks before an act, carries one out, or has nothing but the form of one."""
    return "/acts/" in path or path.endswith(("/start", "/experiments/new"))


def host_rules(settings: Settings) -> HeadRules:
    """Return the rules for heads: the names that browsers may call the console by, and no form of another site."""
    if settings.console_host_names is None and not settings.is_console_local:
        return HeadRules(refuses_pages=True)
    names = (*LOCAL_NAMES, settings.console_host.lower(), *parse_host_names(settings.console_host_names or ""))
    return HeadRules(names, refuses_pages=True)


async def _handled(console: Console, handler: Handler, request: Request) -> Response:
    """Return what a handler answers, or the page of its error."""
    try:
        if HEAD_PROBLEM in request.scope:
            raise request.scope[HEAD_PROBLEM]
        response = await handler(console, request)
    except UnderstudyError as problem:
        response = console.problem(request, problem.as_value())
    return _as_asked(request, response)


def _as_asked(request: Request, response: Response) -> Response:
    """Return a page as it is, or its document where JSON is asked for."""
    return as_json(response) if isinstance(response, PageResponse) and wants_json(request) else response


async def _unknown(console: Console, request: Request, problem: Exception) -> Response:
    is_method = isinstance(problem, HTTPException) and problem.status_code == _NOT_ALLOWED
    found = MethodNotAllowed() if is_method else UnknownRoute("there is no such page")
    return _as_asked(request, console.problem(request, found))


async def _fault(console: Console, request: Request, _problem: Exception) -> Response:
    """Return the page of a defect; uvicorn logs the traceback."""
    found = InternalFault("a defect of the console; its log has the cause")
    return _as_asked(request, console.problem(request, found))


async def _livez(_request: Request) -> Response:
    return PlainTextResponse("ok\n")


async def _static(console: Console, request: Request) -> Response:
    file = console.files.get(request.path_params["name"])
    if file is None or file.address != request.scope["path"]:
        return console.problem(request, UnknownRoute("there is no such file"))
    return Response(file.content, media_type=file.media_type, headers={"cache-control": KEPT_FOR_EVER})
