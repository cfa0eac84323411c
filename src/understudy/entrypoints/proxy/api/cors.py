"""Lets pages of the origins that an operator names call the proxy from browsers (CORS); off by default."""

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware

from understudy.entrypoints.proxy.api.predict_route import App, Receive, Scope, Send
from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM
from understudy.entrypoints.proxy.server.response_writer import WRITE_WHOLE

METHODS = ("GET", "POST")
SENT_HEADERS = (
    "authorization",
    "inference-header-content-length",
    "traceparent",
    "tracestate",
    "x-category",
    "x-entity-id",
    "x-request-id",
    "x-request-timeout-ms",
)
"""Headers that a page may send, beside those that need no permission and the content type."""
READ_HEADERS = (
    "cache-status",
    "inference-header-content-length",
    "retry-after",
    "server-timing",
    "traceresponse",
    "x-model-role",
    "x-model-version",
    "x-policy-generation",
    "x-prediction-id",
    "x-request-id",
)
"""Headers of an answer that a page may read."""
MAX_AGE_SECONDS = 600
"""For which a browser remembers what it may send."""


class Cors:
    """ASGI middleware that answers a browser's question first (preflight), and lets its page read the answers.

    It is outermost: pages read refusals, too. A request without ``Origin`` passes as it came, and so does one whose
    head is refused: no page reads the answer to a name that is not the proxy's (DNS rebinding). Cookies are never
    permitted; a page sends a key itself.

    Args:
        app: The application.
        origins: Those whose pages may call, such as ``https://shop.example``; ``*`` alone stands for all.
    """

    def __init__(self, app: App, origins: Collection[str]) -> None:
        self._app = app
        self._cors = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=METHODS,
            allow_headers=SENT_HEADERS,
            expose_headers=READ_HEADERS,
            max_age=MAX_AGE_SECONDS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_a_pages = scope["type"] == "http" and any(name == b"origin" for name, _ in scope["headers"])
        if not is_a_pages or HEAD_PROBLEM in scope:
            await self._app(scope, receive, send)
            return
        scope.pop(WRITE_WHOLE, None)  # it would write the answer past what adds the headers
        await self._cors(scope, receive, send)
