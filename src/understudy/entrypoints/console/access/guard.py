"""Guard: what holds for every request and every answer, whatever the page: strict hosts, no other site, headers.

It also has paths matched as they were sent: a model's name may have a slash in it, which is written ``%2F``.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

from understudy.entrypoints.proxy.server.head_rules import HEAD_PROBLEM, HeadRules

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final[Mapping[bytes, bytes]] = {
    b"content-security-policy": CONTENT_SECURITY_POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    # Not no-referrer: browsers then send forms with the origin null, which is told from no other site's.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"x-frame-options": b"DENY",
}
NOT_KEPT = b"no-store"


class Guard:
    """ASGI middleware around the whole application.

    Args:
        app: The application; it answers a request with :data:`HEAD_PROBLEM` in its scope with a page that says so.
        rules: For heads; the server judges more of them, where it is ours.
    """

    def __init__(self, app: ASGIApp, rules: HeadRules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Judge the request's head, pass it on, and add the headers to its answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        raw: bytes = scope.get("raw_path") or scope["path"].encode()
        inner: MutableMapping[str, Any] = {**scope, "path": raw.partition(b"?")[0].decode("ascii", "replace")}
        problem = self._rules.problem_of_plain(scope["method"].encode(), dict(scope["headers"]))
        if problem is not None:
            inner.setdefault(HEAD_PROBLEM, problem)
        await self._app(inner, receive, _with_headers(send))


def _with_headers(send: Send) -> Callable[[MutableMapping[str, Any]], Awaitable[None]]:
    async def add(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            named = {name.lower() for name, _ in headers}
            if b"cache-control" not in named:
                headers.append((b"cache-control", NOT_KEPT))
            message = {**message, "headers": [*headers, *HEADERS.items()]}
        await send(message)

    return add
