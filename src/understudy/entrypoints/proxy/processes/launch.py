"""Starts the proxy: one uvicorn, or gunicorn with several uvicorn workers."""

import os
import sys
import tempfile
from importlib import import_module

from understudy.entrypoints.logs import log_as_json
from understudy.entrypoints.proxy.overload.descriptors import raise_descriptor_limit
from understudy.settings import Settings


def leave_out_metrics_sdk() -> None:
    """Keep the proxy's start from importing OpenTelemetry's metrics through redis-py: the proxy does not use them.

    redis-py works without them (measured: 36 modules less), and so does tracing.
    """
    # ``None`` makes Python refuse the import.
    sys.modules.setdefault("opentelemetry.sdk.metrics", None)  # type: ignore[arg-type]  # as the type does not


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    The module is imported late, because the metrics library decides at its import whether the processes of this run
    share their metrics through files.
    """
    log_as_json()
    leave_out_metrics_sdk()
    raise_descriptor_limit()  # before any worker is forked
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else every reconnect is a line on standard error
    if settings.workers == 1:
        chosen = "uvicorn_process"
    else:
        chosen = "gunicorn_workers"
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="understudy-metrics-")
    status: int = import_module(f"understudy.entrypoints.proxy.processes.{chosen}").run(settings)
    return status
