"""Starts the console: one uvicorn process."""

import socket
from functools import partial
from typing import Any

import structlog
import uvicorn

from understudy.entrypoints.console.app import create_app, host_rules
from understudy.entrypoints.console.connections import HEAD_SECONDS, BrowserAdmission
from understudy.entrypoints.console.streams.watches import WATCHES, Watches
from understudy.entrypoints.logs import log_as_json
from understudy.settings import Settings

_log = structlog.get_logger(__name__)
KEEP_ALIVE_SECONDS = 5
"""A browser that polls asks again within it; one that is idle holds no place for long."""
GRACE_SECONDS = 3


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    log_as_json()
    if settings.console_secret is None:
        _log.info("console.secret_is_random", next="set UNDERSTUDY_CONSOLE_SECRET: sessions then outlive a restart")
    if not settings.console_is_https and not settings.is_console_local:
        _log.warning("console.plain_http", next="put TLS in front of it, and leave UNDERSTUDY_CONSOLE_HTTPS out")
    server = ConsoleServer(settings)
    try:
        server.run()
    except KeyboardInterrupt:
        return 130
    return 0 if server.started else 1


class ConsoleServer(uvicorn.Server):
    """Serves the console; its streams end with the process, which would wait for them.

    Args:
        settings: The console's.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__(server_config(settings))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and then shut down as uvicorn does."""
        watches: Watches | None = self.lifespan.state.get(WATCHES)
        if watches is not None:
            watches.end()
        await super().shutdown(sockets)


def server_config(settings: Settings) -> uvicorn.Config:
    """Return how uvicorn serves the console."""
    # Strict HTTP with a time-out for each head, as at the proxy: a browser that sends nothing holds no place for long.
    seconds = min(settings.receive_seconds, HEAD_SECONDS)
    protocol: Any = partial(BrowserAdmission, receive_seconds=seconds, head_rules=host_rules(settings))
    return uvicorn.Config(
        create_app(settings),
        host=settings.console_host,
        port=settings.console_port,
        http=protocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
