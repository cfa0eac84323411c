"""The paths of other protocols, between the predict route and FastAPI: each errs in its own protocol's form."""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import orjson

from understudy import __version__
from understudy.core.requests.strict_json import parse
from understudy.core.routing.access import ANY_MODEL, Scope
from understudy.core.routing.policy import ModelVersion, ServingPolicy
from understudy.entrypoints.proxy.api.authorization import methods_of_path
from understudy.entrypoints.proxy.api.predict_route import App, Receive, Send, give, http_call
from understudy.entrypoints.proxy.api.predict_route import Scope as AsgiScope
from understudy.entrypoints.proxy.dialects.catalogue import (
    named_version,
    not_retired,
    readable_versions,
    repository_index,
)
from understudy.entrypoints.proxy.dialects.dialect import Target
from understudy.entrypoints.proxy.dialects.handler import DialectHandler
from understudy.entrypoints.proxy.dialects.invocations import Invocations, own_headers, target_of
from understudy.entrypoints.proxy.dialects.kserve_v1 import Examples, KServeV1, classified, regressed, status_document
from understudy.entrypoints.proxy.dialects.offered import Offered
from understudy.entrypoints.proxy.dialects.open_inference import (
    OpenInference,
    config_document,
    metadata_document,
    server_document,
)
from understudy.entrypoints.proxy.dialects.statistics import worded_statistics
from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.messages.reply import JSON, HttpCall, Reply
from understudy.entrypoints.proxy.server.graceful_shutdown import LEAVING
from understudy.errors import MethodNotAllowed, UnderstudyError, UnknownRoute
from understudy.settings import Settings

_OPEN_INFERENCE_PREFIX = "/v2"
NO_VERSION = "0"
"""What clients of TensorFlow Serving's API name who want no certain version; its own versions begin with 1."""
_NOT_OFFERED = re.compile(
    r"POST /v1/models/[^/]+(/(versions|labels)/[^/]+)?:explain"
    r"|GET /v1/models/[^/]+(/(versions|labels)/[^/]+)?/metadata",
    re.IGNORECASE,
)
"""What TensorFlow Serving and KServe offer under our own paths, and the proxy does not."""


class Request(NamedTuple):
    """A request to a path of a dialect."""

    call: HttpCall
    target: Target
    scope: AsgiScope


Answer: TypeAlias = Callable[["DialectRoutes", Request], Awaitable[Reply]]


class Route(NamedTuple):
    """A path of a dialect, the scope that it needs, and what answers it; ``None``: its answer asks for one, or none."""

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
        proxy: What the lifespan has opened, before the first request.
        settings: The limits of a body's size and time.
    """

    def __init__(self, app: App, proxy: Offered, settings: Settings) -> None:
        self._app = app
        self._proxy = proxy
        self._settings = settings

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        path = scope["path"] if scope["type"] == "http" else ""
        if not path or not is_dialects(scope["method"], path):
            await self._app(scope, receive, send)
            return
        found = routes_at(path)
        await give(scope, send, await self._answered(http_call(scope, receive, self._settings), scope, found))

    @property
    def handler(self) -> DialectHandler:
        """What answers the calls."""
        return self._proxy.dialects

    async def _answered(self, call: HttpCall, scope: AsgiScope, found: "tuple[tuple[Route, Target], ...]") -> Reply:
        handler = self.handler
        try:
            route, target = next((one for one in found if one[0].method == scope["method"]), (None, None))
            if route is not None and target is not None:
                if route.scope is not None:
                    options = read_headers(dict(call.headers))
                    handler.handler.access.admit(options, route.scope, target.model_name or ANY_MODEL)
                return await route.answer(self, Request(call, target, scope))
            handler.handler.access.admit(read_headers(dict(call.headers)), Scope.READ)
            if not found or _NOT_OFFERED.fullmatch(f"{scope['method']} {call.path}"):
                return handler.refuse(UnknownRoute(), call.path)
            reply = handler.refuse(MethodNotAllowed(), call.path)
            allowed = ", ".join(sorted({one.method for one, _ in found}.union(methods_of_path(call.path)))).encode()
            return reply._replace(headers=[*reply.headers, (b"allow", allowed)])
        except UnderstudyError as problem:
            return handler.refuse(problem, call.path)

    async def alive(self, _request: Request) -> Reply:
        """Answer ``GET /``, by which KServe V1's clients see that the process lives."""
        return json_reply({"status": "alive"})

    # -- KServe V1 and TensorFlow Serving ------------------------------------------------------------------------------

    async def predict_rows(self, request: Request) -> Reply:
        """Answer ``POST /v1/models/{model}:predict``, also of one version."""
        return await self.handler.predict(_V1, request.call, self._in_tensorflows_words(request))

    async def classify(self, request: Request) -> Reply:
        """Answer TensorFlow Serving's ``POST /v1/models/{model}:classify``, also of one version."""
        return await self.handler.predict(_CLASSIFY, request.call, self._in_tensorflows_words(request))

    async def regress(self, request: Request) -> Reply:
        """Answer TensorFlow Serving's ``POST /v1/models/{model}:regress``, also of one version."""
        return await self.handler.predict(_REGRESS, request.call, self._in_tensorflows_words(request))

    async def version_status(self, request: Request) -> Reply:
        """Answer TensorFlow Serving's ``GET /v1/models/{model}/versions/{version}`` and ``…/labels/{label}``."""
        target = self._in_tensorflows_words(request)
        policy, version = self._named(request._replace(target=target))
        labels = [version.version] if target.names_version else not_retired(policy)
        return json_reply({"model_version_status": status_document(policy, labels)})

    # -- MLflow and SageMaker ------------------------------------------------------------------------------------------

    async def invoke(self, request: Request) -> Reply:
        """Answer ``POST /invocations``, and the paths under which MLflow and SageMaker have it for one model."""
        try:
            reply = await self.handler.predict(_INVOCATIONS, *self._invoked(request.call, request.target.model_name))
        except UnderstudyError as problem:
            reply = self.handler.refuse(problem, request.call.path)
        return with_message(reply)

    def _invoked(self, call: HttpCall, named: str) -> tuple[HttpCall, Target]:
        """Return a call with what it says in our own headers, and whose answer it asks for."""
        call = call._replace(headers=own_headers(call.headers))
        fields = {name: value for name, value in call.headers if name != b"content-encoding"}
        options, handler = read_headers(fields), self.handler.handler
        handler.access.require_key(options)  # who has none learns of no model
        permitted = handler.access.permitted_models(options, Scope.PREDICT)
        target = target_of(fields, named or None, self._settings.default_model, self._proxy.snapshot(), permitted)
        return call, target

    async def ping(self, request: Request) -> Reply:
        """Answer ``GET /ping`` and ``GET /health`` as ``/readyz`` decides."""
        is_ready, _ = await self._proxy.health(is_leaving=is_leaving(request.scope))
        return json_reply({}, 200 if is_ready else 503)

    async def version(self, _request: Request) -> Reply:
        """Answer ``GET /version``."""
        return Reply(200, [(b"content-type", b"text/plain; charset=utf-8")], __version__.encode())

    # -- Open Inference Protocol ---------------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Reply:
        """Answer ``POST /v2/models/{model}/infer``, also of one version."""
        return await self.handler.predict(_V2, request.call, request.target)

    async def live(self, _request: Request) -> Reply:
        """Answer ``GET /v2/health/live``."""
        return json_reply({"live": True})

    async def ready(self, request: Request) -> Reply:
        """Answer ``GET /v2/health/ready`` as ``/readyz`` decides."""
        is_ready, _ = await self._proxy.health(is_leaving=is_leaving(request.scope))
        return json_reply({"ready": is_ready, "live": True}, 200 if is_ready else 503)

    async def server_metadata(self, _request: Request) -> Reply:
        """Answer ``GET /v2``."""
        return json_reply(server_document())

    async def model_metadata(self, request: Request) -> Reply:
        """Answer ``GET /v2/models/{model}``, also of one version."""
        policy, version = self._named(request)
        return json_reply(metadata_document(policy, version, not_retired(policy)))

    async def model_config(self, request: Request) -> Reply:
        """Answer ``GET /v2/models/{model}/config``, also of one version."""
        return json_reply(config_document(*self._named(request)))

    async def model_ready(self, request: Request) -> Reply:
        """Answer ``GET /v2/models/{model}/ready``, also of one version."""
        policy, version = self._named(request)
        is_ready = await self._proxy.readiness.is_ready(version)
        return json_reply({"name": policy.model_name, "ready": is_ready}, 200 if is_ready else 503)

    async def repository_index(self, request: Request) -> Reply:
        """Answer ``POST /v2/repository/index``: the versions that a caller may know, and whether they have servers."""
        body = await request.call.read_body()
        document = parse(body) if body.strip() else {}
        ready_only = isinstance(document, dict) and document.get("ready") is True
        permitted = self.handler.handler.access.permitted_models(read_headers(dict(request.call.headers)), Scope.READ)
        found = repository_index(self._proxy.snapshot(), permitted, ready_only=ready_only)
        return json_reply([one._asdict() for one in found])

    async def model_statistics(self, request: Request) -> Reply:
        """Answer ``GET /v2/models/{model}/stats``, also of one version: of all that are not retired without one."""
        policy, version = self._named(request)
        labels = [version.version] if request.target.names_version else not_retired(policy)
        versions = map(policy.versions.__getitem__, labels)
        return await worded_statistics(self.handler.statistics, versions, json_reply)

    async def statistics(self, request: Request) -> Reply:
        """Answer ``GET /v2/models/stats``: of the versions that a caller may know."""
        permitted = self.handler.handler.access.permitted_models(read_headers(dict(request.call.headers)), Scope.READ)
        versions = readable_versions(self._proxy.snapshot(), permitted)
        return await worded_statistics(self.handler.statistics, versions, json_reply)

    def _named(self, request: Request) -> tuple[ServingPolicy, ModelVersion]:
        """Return a model's policy, and the version that a path names; the champion where it names none.

        Raises:
            PolicyNotLoaded, UnknownModel: There is no policy.
            UnknownVersion: The model has no such version, or no such label.
        """
        policy = self.handler.policy_of(request.target.model_name, dict(request.call.headers))
        return policy, named_version(policy, request.target)

    def _in_tensorflows_words(self, request: Request) -> Target:
        """Return what a path of TensorFlow Serving names; version 0 is none, unless the model has one of that name."""
        target, snapshot = request.target, self._proxy.snapshot()
        policy = None if snapshot is None else snapshot.policies.get(target.model_name)
        is_none = target.version == NO_VERSION and (policy is None or NO_VERSION not in policy.versions)
        return Target(target.model_name) if is_none else target


def is_leaving(scope: Mapping[str, Any]) -> bool:
    """Whether the server that a request came to drains, and no other process takes its place."""
    return LEAVING in scope.get("state", ())


def json_reply(content: Any, status: int = 200) -> Reply:
    """Return a document."""
    return Reply(status, [JSON], orjson.dumps(content))


def with_message(reply: Reply) -> Reply:
    """Return an error with its sentence as ``message`` too, which is what SageMaker's clients show."""
    if reply.status < 400:  # noqa: PLR2004 - where HTTP's errors begin
        return reply
    document = orjson.loads(reply.body)
    return reply._replace(body=orjson.dumps({"message": document["error"], **document}))


_V1, _V2, _INVOCATIONS = KServeV1(), OpenInference(), Invocations()
_CLASSIFY, _REGRESS = Examples(classified), Examples(regressed)
_R = DialectRoutes
ROUTES: tuple[Route, ...] = (
    Route("GET", "/", None, _R.alive),
    Route("POST", "/v1/models/{model}:predict", None, _R.predict_rows),
    Route("POST", "/v1/models/{model}/versions/{version}:predict", None, _R.predict_rows),
    Route("POST", "/v1/models/{model}/labels/{label}:predict", None, _R.predict_rows),
    *(
        Route("POST", f"/v1/models/{{model}}{version}:{verb}", None, answer)
        for verb, answer in (("classify", _R.classify), ("regress", _R.regress))
        for version in ("", "/versions/{version}", "/labels/{label}")
    ),
    Route("GET", "/v1/models/{model}/versions/{version}", Scope.READ, _R.version_status),
    Route("GET", "/v1/models/{model}/labels/{label}", Scope.READ, _R.version_status),
    Route("POST", "/invocations", None, _R.invoke),
    Route("POST", "/v1/models/{model}/invocations", None, _R.invoke),
    Route("POST", "/endpoints/{model}/invocations", None, _R.invoke),
    Route("POST", "/serving-endpoints/{model}/invocations", None, _R.invoke),
    Route("GET", "/ping", None, _R.ping),
    Route("GET", "/health", None, _R.ping),
    Route("GET", "/version", None, _R.version),
    Route("GET", "/v2", Scope.READ, _R.server_metadata),
    Route("GET", "/v2/health/live", None, _R.live),
    Route("GET", "/v2/health/ready", None, _R.ready),
    Route("POST", "/v2/repository/index", Scope.READ, _R.repository_index),
    Route("POST", "/v2/models/{model}/infer", None, _R.infer),
    Route("POST", "/v2/models/{model}/versions/{version}/infer", None, _R.infer),
    Route("GET", "/v2/models/stats", Scope.READ, _R.statistics),
    Route("GET", "/v2/models/{model}/stats", Scope.READ, _R.model_statistics),
    Route("GET", "/v2/models/{model}/versions/{version}/stats", Scope.READ, _R.model_statistics),
    Route("GET", "/v2/models/{model}", Scope.READ, _R.model_metadata),
    Route("GET", "/v2/models/{model}/versions/{version}", Scope.READ, _R.model_metadata),
    Route("GET", "/v2/models/{model}/ready", Scope.READ, _R.model_ready),
    Route("GET", "/v2/models/{model}/versions/{version}/ready", Scope.READ, _R.model_ready),
    Route("GET", "/v2/models/{model}/config", Scope.READ, _R.model_config),
    Route("GET", "/v2/models/{model}/versions/{version}/config", Scope.READ, _R.model_config),
)
"""The paths of the dialects; ``GET /v1/models/{model}``, which KServe and TensorFlow Serving ask too, is ours."""
_MAX_CACHED_PATH = 512
"""Characters: a path's length is the caller's choice."""
_PATTERNS = tuple((route, route.pattern) for route in ROUTES)


def routes_at(path: str) -> tuple[tuple[Route, Target], ...]:
    """Return the routes at a path, whatever their methods, with what the path names."""
    return _cached_routes_at(path) if len(path) <= _MAX_CACHED_PATH else _routes_at(path)


def is_dialects(method: str, path: str) -> bool:
    """Whether a request is answered in the form of another protocol, be it that there is no such path.

    One whose path is a dialect's by another method, and ours by this one, is ours: a model's name may end in a verb.
    """
    found = routes_at(path)
    if found:
        return any(route.method == method for route, _ in found) or method not in methods_of_path(path)
    is_open_inference = path == _OPEN_INFERENCE_PREFIX or path.startswith(_OPEN_INFERENCE_PREFIX + "/")
    return is_open_inference or bool(_NOT_OFFERED.fullmatch(f"{method} {path}"))


def _routes_at(path: str) -> tuple[tuple[Route, Target], ...]:
    found = []
    for route, pattern in _PATTERNS:
        match = pattern.fullmatch(path)
        if match is not None:
            names = {name: unquote(value) for name, value in match.groupdict().items()}
            found.append((route, Target(names.get("model", ""), names.get("version"), names.get("label"))))
    return tuple(found)


_cached_routes_at = lru_cache(maxsize=4_096)(_routes_at)
