"""One proxy process: uvicorn, with its options, rules for requests' heads, and a tuned garbage collector."""

import gc
import sys
from functools import partial
from typing import Any

import uvicorn

from understudy.entrypoints.proxy.api.app import create_app
from understudy.entrypoints.proxy.server.admission import Admission
from understudy.entrypoints.proxy.server.graceful_shutdown import GracefulServer
from understudy.entrypoints.proxy.server.head_rules import LOCAL_NAMES, HeadRules
from understudy.settings import Settings, parse_host_names

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
    "proxy_headers": False,  # the proxy does not use the address that a forwarding header claims
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
}


def uvicorn_options(settings: Settings) -> dict[str, Any]:
    """Return uvicorn's options, the same in every process of the proxy."""
    return {
        **UVICORN_OPTIONS,
        "http": partial(Admission, receive_seconds=settings.receive_seconds, head_rules=head_rules_from(settings)),
        "timeout_graceful_shutdown": max(1, round(settings.drain_seconds)),
    }


def head_rules_from(settings: Settings) -> HeadRules:
    """Return the rules that this process's settings set for the heads of requests."""
    if settings.host_names is None and (settings.needs_key or not settings.is_local):
        return HeadRules(refuses_pages=not settings.needs_key)
    names = (*LOCAL_NAMES, settings.host.lower(), *parse_host_names(settings.host_names or ""))
    return HeadRules(names, refuses_pages=not settings.needs_key)


TURN_SECONDS = 0.0005
"""How long a thread may keep the interpreter's lock (GIL) while another waits for it."""


def tune_runtime() -> None:
    """Tune garbage collector and thread switches of a proxy process that has opened its parts and is about to serve.

    What start-up made is frozen, and the collector runs less often: requests leave no reference cycles, so that each
    collection finds nothing (measured: 10 of 169 µs a request).

    Threads that parse long bodies release the GIL ten times as often as by default: the event loop needs it after each
    system call, and each time waits for all of them.
    """
    sys.setswitchinterval(TURN_SECONDS)
    gc.enable()
    gc.collect()
    gc.freeze()
    # At most 100,000 objects a collection, 200 of them before a full one. Reading the policies of 10,000 models anew
    # makes more than that, and a collection of 400,000 blocks the event loop for 40 ms and longer.
    gc.set_threshold(20_000, 5, 200)


def run(settings: Settings) -> int:
    """Serve with one proxy process until SIGTERM or SIGINT; returns the exit status."""
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
    gc.disable()  # until tune_runtime(): what start-up makes is kept
    try:
        server.run()
    except KeyboardInterrupt:
        return 130
    return 0 if server.started else 1
