"""An empty ASGI application on the proxy's own server settings: what uvicorn itself costs."""

import sys

import uvicorn

from understudy.entrypoints.proxy.api.predict_route import Receive, Scope, Send, read_body
from understudy.entrypoints.proxy.processes.uvicorn_process import BACKLOG, UVICORN_OPTIONS

_LIMIT_BYTES = 1_048_576
_RECEIVE_SECONDS = 10.0
_BODY = b'{"prediction":{"score":0.5},"model":"bench","version":"1","role":"champion"}'
_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_BODY))]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, answer a constant."""
    if scope["type"] != "http":
        return
    await read_body(receive, _LIMIT_BYTES, _RECEIVE_SECONDS)
    await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
    await send({"type": "http.response.body", "body": _BODY})


if __name__ == "__main__":
    uvicorn.run(echo, port=int(sys.argv[1]), backlog=BACKLOG, **{**UVICORN_OPTIONS, "lifespan": "off"})
