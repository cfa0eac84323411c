"""Authorization: the scope that each route needs of a key. A route without an entry needs one too (deny by default)."""

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from starlette.routing import compile_path

from understudy.core.routing.access import ANY_MODEL, AnyModel, Scope
from understudy.core.routing.policy import ApiKey
from understudy.entrypoints.proxy.api.predict_route import App, Receive, Send, send_reply
from understudy.entrypoints.proxy.api.predict_route import Scope as AsgiScope
from understudy.entrypoints.proxy.messages.headers import read_headers
from understudy.entrypoints.proxy.predict.handler import PredictHandler
from understudy.errors import UnderstudyError

OPEN: Final = None
ACCESS: Mapping[tuple[str, str], Scope | None] = {
    ("POST", "/v1/models/{model}/predict"): Scope.PREDICT,
    ("POST", "/v1/models/{model}/predict:batch"): Scope.PREDICT,
    ("POST", "/v1/models/{model}/rank"): Scope.PREDICT,
    ("POST", "/v1/models/{model}/versions/{version}/predict"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/versions/{version}/rank"): Scope.OPERATE,
    ("POST", "/v1/outcomes"): Scope.OUTCOMES,
    ("POST", "/v1/outcomes:check"): Scope.OUTCOMES,
    ("GET", "/v1/models"): Scope.READ,
    ("GET", "/v1/models/{model}"): Scope.READ,
    ("GET", "/v1/models/{model}/assignment"): Scope.READ,
    ("GET", "/v1/registry/models"): Scope.READ,
    ("GET", "/v1/registry/models/{model}"): Scope.READ,
    ("GET", "/v1/registry/versions"): Scope.READ,
    ("GET", "/v1/registry/applied"): Scope.READ,
    ("GET", "/v1/registry/models/{model}/versions"): Scope.READ,
    ("POST", "/v1/registry/models/{model}/versions"): Scope.REGISTER,
    ("GET", "/v1/registry/models/{model}/versions/{version}"): Scope.READ,
    ("POST", "/v1/registry/models/{model}/versions/{version}:check"): Scope.OPERATE,
    ("POST", "/v1/registry/models/{model}/versions/{version}:validate"): Scope.OPERATE,
    ("POST", "/v1/registry/models/{model}/versions/{version}:retire"): Scope.REGISTER,
    ("POST", "/v1/registry/models/{model}/versions/{version}:restore"): Scope.REGISTER,
    ("PUT", "/v1/registry/models/{model}/versions/{version}/endpoints/{target}"): Scope.REGISTER,
    ("DELETE", "/v1/registry/models/{model}/versions/{version}/endpoints/{target}"): Scope.REGISTER,
    ("GET", "/v1/registry/servers"): Scope.READ,
    ("GET", "/v1/registry/models/{model}/versions/{version}/loading"): Scope.READ,
    ("POST", "/v1/registry/models/{model}/versions/{version}:load"): Scope.OPERATE,
    ("POST", "/v1/registry/models/{model}/versions/{version}:unload"): Scope.OPERATE,
    ("POST", "/v1/models/{model}:rollback"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/rollouts"): Scope.OPERATE,
    ("GET", "/v1/models/{model}/rollouts"): Scope.READ,
    ("GET", "/v1/rollouts"): Scope.READ,
    ("GET", "/v1/models/{model}/rollouts/{rollout_id}"): Scope.READ,
    ("POST", "/v1/models/{model}/rollouts/{rollout_id}:pause"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/rollouts/{rollout_id}:resume"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/rollouts/{rollout_id}:promote"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/rollouts/{rollout_id}:approve"): Scope.OPERATE,
    ("POST", "/v1/models/{model}/rollouts/{rollout_id}:abort"): Scope.OPERATE,
    ("GET", "/v1/models/{model}/policy"): Scope.READ,
    ("PATCH", "/v1/models/{model}/policy"): Scope.OPERATE,
    ("GET", "/v1/models/{model}/reports/ab"): Scope.READ,
    ("POST", "/v1/models/{model}/reports/ab"): Scope.READ,
    ("GET", "/v1/models/{model}/reports/ab-plan"): Scope.READ,
    ("GET", "/v1/models/{model}/experiments"): Scope.READ,
    ("POST", "/v1/models/{model}/experiments"): Scope.OPERATE,
    ("GET", "/v1/experiments"): Scope.READ,
    ("POST", "/v1/models/{model}/experiments/{test_id}:stop"): Scope.OPERATE,
    ("GET", "/v1/models/{model}/changes"): Scope.READ,
    ("GET", "/v1/models/{model}/explanation"): Scope.READ,
    ("GET", "/v1/models/{model}/policy/reach"): Scope.READ,
    ("GET", "/v1/models/{model}/reports/shadow"): Scope.READ,
    ("GET", "/v1/models/{model}/reports/drift"): Scope.READ,
    ("GET", "/v1/models/{model}/reports/skew"): Scope.READ,
    ("GET", "/v1/audit"): Scope.READ,
    ("GET", "/v1/keys"): Scope.KEYS,
    ("POST", "/v1/keys"): Scope.KEYS,
    ("POST", "/v1/keys/{key_id}:revoke"): Scope.KEYS,
    ("GET", "/problems/{code}"): Scope.READ,
    ("GET", "/livez"): OPEN,
    ("HEAD", "/livez"): OPEN,
    ("GET", "/startupz"): OPEN,
    ("GET", "/readyz"): OPEN,
    ("HEAD", "/readyz"): OPEN,
    ("GET", "/docs"): OPEN,
    ("HEAD", "/docs"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("HEAD", "/openapi.json"): OPEN,
}
"""The scope of each route. Any other method and path needs ``read``, and is then answered with 404 or 405."""

OF_SEVERAL_MODELS = frozenset(
    {
        ("POST", "/v1/outcomes"),
        ("POST", "/v1/outcomes:check"),
        ("GET", "/v1/rollouts"),
        ("GET", "/v1/experiments"),
        ("GET", "/v1/models"),
        ("GET", "/v1/registry/models"),
        ("GET", "/v1/registry/versions"),
        ("GET", "/v1/registry/applied"),
        ("GET", "/v1/audit"),
        ("GET", "/problems/{code}"),
    }
)
"""Routes that a scope for any one model opens; they ask :func:`permitted_models` which models they may touch."""
_PERMITTED = "understudy.permitted_models"
_OWN_KEY = "understudy.own_key"
_TABLE = tuple((method, path, compile_path(path)[0], needed) for (method, path), needed in ACCESS.items())


class AuthorizationMiddleware:
    """ASGI middleware that passes a request on when its key has the route's scope, and else answers 401, 403 or 429.

    Args:
        app: The application.
        handler: Returns what checks keys and quotas and builds problem answers; it exists once the lifespan has begun.
    """

    def __init__(self, app: App, handler: Callable[[], PredictHandler]) -> None:
        self._app = app
        self._handler = handler

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer with a problem."""
        if scope["type"] == "http":
            needed, model_name = scope_of_route(scope["method"], scope["path"])
            if needed is not OPEN:
                handler = self._handler()
                try:
                    # The predict handler charges the key's quota for predict calls itself: the fast path calls it too.
                    charges = needed is not Scope.PREDICT
                    options = read_headers(dict(scope["headers"]))
                    handler.access.admit(options, needed, model_name, charges=charges)
                    if needed is Scope.KEYS:
                        scope = {**scope, _OWN_KEY: handler.access.key(options)}
                    if model_name is ANY_MODEL:
                        scope = {**scope, _PERMITTED: handler.access.permitted_models(options, needed)}
                except UnderstudyError as problem:
                    await send_reply(send, handler.refuse(problem, scope["path"]))
                    return
        await self._app(scope, receive, send)


def permitted_models(scope: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the models that a request to a route :data:`OF_SEVERAL_MODELS` may be about; ``None``: all of them.

    Raises:
        KeyError: The authorization middleware did not see the request.
    """
    permitted: frozenset[str] | None = scope[_PERMITTED]
    return permitted


def own_key(scope: Mapping[str, Any]) -> ApiKey:
    """Return the key of the caller of a route about keys.

    Raises:
        KeyError: The authorization middleware did not see the request.
    """
    found: ApiKey = scope[_OWN_KEY]
    return found


def scope_of_route(method: str, path: str) -> tuple[Scope | None, str | AnyModel | None]:
    """Return the scope that a request's route needs (``OPEN``: none), and the model whose own scope is enough."""
    for listed, listed_path, pattern, needed in _TABLE:
        found = pattern.match(path) if listed == method else None
        if found is not None:
            if (method, listed_path) in OF_SEVERAL_MODELS:
                return needed, ANY_MODEL
            model_name = found.groupdict().get("model")
            return needed, unquote(model_name) if model_name is not None else None
    return Scope.READ, None


def methods_of_path(path: str) -> list[str]:
    """Return the HTTP methods of the routes at a path, for ``Allow``."""
    return sorted(method for method, _, pattern, _ in _TABLE if pattern.match(path))
