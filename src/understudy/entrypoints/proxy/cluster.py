"""Several proxy processes on one machine: gunicorn with uvicorn workers."""

import os
import shutil
from typing import Any

from gunicorn.app.base import BaseApplication
from prometheus_client import multiprocess
from uvicorn_worker import UvicornWorker

from understudy.entrypoints.proxy.app import create_app
from understudy.entrypoints.proxy.single import BACKLOG, KEEP_ALIVE_SECONDS, settle, uvicorn_options
from understudy.settings import Settings

WORKER_TIMEOUT_SECONDS = 15
"""A worker whose event loop has stood still this long is replaced."""


class _GunicornProxy(BaseApplication):  # type: ignore[misc]  # the package has no types
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        super().__init__()

    def load_config(self) -> None:
        settings = self._settings
        options: dict[str, Any] = {
            "bind": f"{settings.host}:{settings.port}",
            "workers": settings.workers,
            "worker_class": _worker_class(settings),
            "backlog": BACKLOG,
            "keepalive": KEEP_ALIVE_SECONDS,
            "timeout": WORKER_TIMEOUT_SECONDS,
            "graceful_timeout": max(1, round(settings.drain_seconds)),
            "preload_app": False,  # gRPC channels made before a fork crash the child
            "control_socket_disable": True,
            "child_exit": _forget_dead_worker,
            "loglevel": "warning",
        }
        if settings.tls_cert is not None:
            options |= {"certfile": str(settings.tls_cert), "keyfile": str(settings.tls_key)}
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        # Runs in the worker, after the fork.
        return create_app(self._settings, on_open=settle)


def _worker_class(settings: Settings) -> type[Any]:
    class ProxyWorker(UvicornWorker):  # type: ignore[misc]  # the package has no types
        CONFIG_KWARGS = uvicorn_options(settings)

    return ProxyWorker


def _forget_dead_worker(_arbiter: Any, worker: Any) -> None:
    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]  # the package has no types


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    try:
        _GunicornProxy(settings).run()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        shutil.rmtree(os.environ["PROMETHEUS_MULTIPROC_DIR"], ignore_errors=True)
    return 0
