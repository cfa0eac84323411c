"""The paths of other protocols, between the predict route and FastAPI: each errs in its own protocol's form."""

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, TypeAlias
from urllib.parse import unquote

import orjson

from understudy.core.routing.access import Scope
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.entrypoints.proxy.api.predict_route import App, Receive, Send, give, http_call
from understudy.entrypoints.proxy.api.predict_route import Scope as AsgiScope
from understudy.entrypoints.proxy.dialects.dialect import Target
from understudy.entrypoints.proxy.dialects.handler import DialectHandler, labelled
from understudy.entrypoints.proxy.dialects.kserve_v1 import KServeV1, status_document
from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.errors import MethodNotAllowed, UnderstudyError, UnknownVersion
from understudy.settings import Settings

Answer: TypeAlias = Callable[["DialectRoutes", HttpCall, Target], Awaitable[Reply]]
RETIRED = "retired"


class Parts(Protocol):
    """What the routes need of the open proxy."""

    @property
    def dialects(self) -> DialectHandler:
        """Answers the calls."""


class Route(NamedTuple):
    """A path of a dialect, the scope that it needs, and what answers it; ``None``: the handler asks for the scope."""

    method: str
    path: str
    scope: Scope | None
    answer: Answer

    @property
    def pattern(self) -> "re.Pattern[str]":
        """Return what matches its paths, with the names in them percent-encoded; the fixed words in any case."""
        text = re.escape(self.path).replace(r"\{", "{").replace(r"\}", "}")
        return re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", text), re.IGNORECASE)


class DialectRoutes:
    """ASGI middleware that answers the paths of other protocols, and passes on every other request.

    Args:
        app: Answers every other request.
        parts: What the lifespan has opened, before the first request.
        settings: The limits of a body's size and time.
    """

    def __init__(self, app: App, parts: Parts, settings: Settings) -> None:
        self._app = app
        self._parts = parts
        self._settings = settings

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        found = routes_at(scope["path"]) if scope["type"] == "http" else ()
        if not found:
            await self._app(scope, receive, send)
            return
        call = http_call(scope, receive, self._settings)
        await give(scope, send, await self._answered(call, scope["method"], found))

    @property
    def handler(self) -> DialectHandler:
        """What answers the calls."""
        return self._parts.dialects

    async def _answered(self, call: HttpCall, method: str, found: "tuple[tuple[Route, Target], ...]") -> Reply:
        handler = self.handler
        try:
            route, target = next(((one, target) for one, target in found if one.method == method), (None, found[0][1]))
            needed = Scope.READ if route is None else route.scope
            if needed is not None:
                handler.handler.admit(read_headers(dict(call.headers)), needed, target.model_name or None)
            if route is None:
                reply = handler.refuse(MethodNotAllowed(), call.path)
                allowed = ", ".join(sorted({one.method for one, _ in found})).encode()
                return reply._replace(headers=[*reply.headers, (b"allow", allowed)])
            return await route.answer(self, call, target)
        except UnderstudyError as problem:
            return handler.refuse(problem, call.path)

    async def alive(self, _call: HttpCall, _target: Target) -> Reply:
        """Answer ``GET /``, by which KServe V1's clients see that the process lives."""
        return json_reply({"status": "alive"})

    # -- KServe V1 and TensorFlow Serving ------------------------------------------------------------------------------

    async def predict_rows(self, call: HttpCall, target: Target) -> Reply:
        """Answer ``POST /v1/models/{model}:predict``, also of one version."""
        return await self.handler.predict(_V1, call, target)

    async def version_status(self, _call: HttpCall, target: Target) -> Reply:
        """Answer TensorFlow Serving's ``GET /v1/models/{model}/versions/{version}`` and ``…/labels/{label}``."""
        policy = self.handler.policy_of(target.model_name)
        version = _version_at(policy, target)
        return json_reply({"model_version_status": status_document(policy, [version.version])})


def json_reply(content: Any, status: int = 200) -> Reply:
    """Return a document."""
    return Reply(status, [JSON], orjson.dumps(content))


def not_retired(policy: ServingPolicy) -> list[str]:
    """Return the labels of a model's versions that are not retired."""
    return [
        label for label, version in policy.versions.items() if policy.statuses.get(label, version.status) != RETIRED
    ]


def _version_at(policy: ServingPolicy, target: Target) -> ModelVersion:
    """Return the version that a path names; the champion where it names none.

    Raises:
        UnknownVersion: The model has no such version, or no such label.
    """
    if target.label is not None:
        found = labelled(policy, target.label)
    else:
        found = policy.champion if target.version is None else policy.versions.get(target.version)
    if found is None:
        raise UnknownVersion
    return found


_V1 = KServeV1()
ROUTES: tuple[Route, ...] = (
    Route("GET", "/", None, DialectRoutes.alive),
    Route("POST", "/v1/models/{model}:predict", None, DialectRoutes.predict_rows),
    Route("POST", "/v1/models/{model}/versions/{version}:predict", None, DialectRoutes.predict_rows),
    Route("POST", "/v1/models/{model}/labels/{label}:predict", None, DialectRoutes.predict_rows),
    Route("GET", "/v1/models/{model}/versions/{version}", Scope.READ, DialectRoutes.version_status),
    Route("GET", "/v1/models/{model}/labels/{label}", Scope.READ, DialectRoutes.version_status),
)
"""The paths of the dialects; ``GET /v1/models/{model}``, which KServe and TensorFlow Serving ask too, is ours."""
_MAX_CACHED_PATH = 512
"""Characters: a path's length is the caller's choice."""
_PATTERNS = tuple((route, route.pattern) for route in ROUTES)


def routes_at(path: str) -> tuple[tuple[Route, Target], ...]:
    """Return the routes at a path, whatever their methods, with what the path names."""
    return _cached_routes_at(path) if len(path) <= _MAX_CACHED_PATH else _routes_at(path)


def _routes_at(path: str) -> tuple[tuple[Route, Target], ...]:
    found = []
    for route, pattern in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            names = {name: unquote(value) for name, value in match.groupdict().items()}
            found.append((route, Target(names.get("model", ""), names.get("version"), names.get("label"))))
    return tuple(found)


_cached_routes_at = lru_cache(maxsize=4_096)(_routes_at)
