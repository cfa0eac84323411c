"""One proxy process: uvicorn."""

import gc
import sys
from functools import partial
from typing import Any

import uvicorn

from understudy.entrypoints.proxy.api.app import create_app
from understudy.entrypoints.proxy.server.connection import Connection
from understudy.entrypoints.proxy.server.graceful_shutdown import GracefulServer
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


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """Return what every process of the proxy gives to uvicorn."""
    return {
        **UVICORN_OPTIONS,
        "http": partial(Connection, receive_seconds=settings.receive_seconds),
        "timeout_graceful_shutdown": max(1, round(settings.drain_seconds)),
    }


TURN_SECONDS = 0.0005
"""How long a thread may keep the interpreter while another wants it."""


def tune_runtime() -> None:
    """Prepare a process that has opened its parts for serving.

    What start-up made goes out of the garbage collector's sight, which then looks less often: requests leave no cycles
    behind, so each of its rounds is spent for nothing (measured: 10 of 169 µs a request).

    Threads that read long bodies give the interpreter back ten times as often as by default: the event loop asks for it
    after every system call, and each time waits for all of them.
    """
    sys.setswitchinterval(TURN_SECONDS)
    gc.enable()
    gc.collect()
    gc.freeze()
    # At most 100,000 objects a round, until there were 200 such rounds. Policies of 10,000 models that are read anew
    # are more than that, and a round over 400,000 takes 40 ms and longer.
    gc.set_threshold(20_000, 5, 200)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    config = uvicorn.Config(
        create_app(settings, on_open=tune_runtime),
        host=settings.host,
        port=settings.port,
        backlog=BACKLOG,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
        **uvicorn_options(settings),
    )
    server = GracefulServer(config, settings.drain_seconds)
    gc.disable()  # until tune_runtime(): what start-up makes stays
    try:
        server.run()
    except KeyboardInterrupt:
        return 130
    return 0 if server.started else 1
