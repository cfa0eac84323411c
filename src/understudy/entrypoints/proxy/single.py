"""One proxy process: uvicorn."""

from typing import Any

import uvicorn

from understudy.entrypoints.proxy.app import create_app
from understudy.settings import Settings

KEEP_ALIVE_SECONDS = 75
BACKLOG = 2_048
UVICORN_OPTIONS: dict[str, Any] = {
    "loop": "uvloop",
    "http": "httptools",
    "ws": "none",
    "lifespan": "on",
    "access_log": False,
    "log_config": None,
    "server_header": False,
    "proxy_headers": False,  # nothing here asks who the caller's own proxy says the caller is
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
}


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    config = uvicorn.Config(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(settings.drain_seconds)),
        **UVICORN_OPTIONS,
    )
    server = uvicorn.Server(config)
    try:
        server.run()
    except KeyboardInterrupt:
        return 130
    return 0 if server.started else 1
