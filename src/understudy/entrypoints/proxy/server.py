"""Starts the proxy: one uvicorn, or gunicorn with several uvicorn workers."""

import os
import tempfile
from importlib import import_module

from understudy.entrypoints.logs import log_as_json
from understudy.settings import Settings


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    The module is chosen here and imported late, because the metrics library decides at its import whether the processes
    of this run share their figures through files.
    """
    log_as_json()
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else every reconnect is a line on standard error
    if settings.workers == 1:
        chosen = "single"
    else:
        chosen = "cluster"
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="understudy-metrics-")
    status: int = import_module(f"understudy.entrypoints.proxy.{chosen}").run(settings)
    return status
