"""Several proxy processes on one machine: gunicorn with uvicorn workers."""

import math
import mmap
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from uvicorn_worker import UvicornWorker

from understudy.adapters.telemetry.prometheus_files import merge_exited
from understudy.bootstrap.tracing import FLUSH_SECONDS, wanted_traces
from understudy.entrypoints.proxy.api.app import create_app
from understudy.entrypoints.proxy.processes.uvicorn_process import (
    BACKLOG,
    KEEP_ALIVE_SECONDS,
    tune_runtime,
    uvicorn_options,
)
from understudy.entrypoints.proxy.rpc.listening_socket import bound_socket
from understudy.entrypoints.proxy.server.graceful_shutdown import GracefulServer
from understudy.settings import Settings

WORKER_TIMEOUT_SECONDS = 15
"""A worker whose event loop has stood still this long is replaced."""
START_SECONDS = 60.0
"""How long a new worker may take to serve before a reload gives it up."""
CHECK_SECONDS = 0.05
_ENDING = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGQUIT))
_BOOTING, _SERVING, _LEAVING = range(3)


class _Arbiter(Arbiter):  # type: ignore[misc]  # the package has no types
    """Replaces workers so that as many serve at any time as are configured.

    gunicorn's own tells the old workers to stop as soon as it has forked the new ones: until these serve, seconds later
    on a busy machine, no worker accepts connections. And it counts a draining worker as one that serves. Its hooks
    change neither (ADR 34).
    """

    is_ending = False

    def signal(self, sig: int, frame: Any) -> None:
        """Also note that the arbiter shall stop, so that a reload under way ends early."""
        self.is_ending = self.is_ending or sig in _ENDING
        super().signal(sig, frame)

    def stop(self, graceful: bool = True) -> None:  # noqa: FBT001, FBT002 - the package's own
        """End all workers, which learn that none is replaced."""
        self.app.end()
        super().stop(graceful)

    def reload(self) -> None:
        """Replace the workers one after another, each once a new one serves; settings and code stay as they are.

        When a new one fails to serve, the remaining old ones go on.
        """
        self._stats["reloads"] += 1
        self.log.reopen_files()
        for old in self._staying():
            if self.is_ending or not self._start_another():
                return
            self._retire(old)

    def manage_workers(self) -> None:
        """Start the workers that are missing, and end the oldest of those that are too many."""
        staying = self._staying()
        for _ in range(self.num_workers - len(staying)):
            self.spawn_worker()
        for worker in staying[: max(0, len(staying) - self.num_workers)]:
            self._retire(worker)
        self.app.merge_metrics_of_exited()

    def _staying(self) -> list["ProxyWorker"]:
        """Return the workers that were not told to stop, the oldest first."""
        staying = [worker for worker in self.WORKERS.values() if not worker.is_leaving]
        return sorted(staying, key=lambda worker: worker.age)

    def _retire(self, worker: "ProxyWorker") -> None:
        worker.state = _LEAVING
        self.kill_worker(worker.pid, signal.SIGTERM)

    def _start_another(self) -> bool:
        """Start a worker and wait until it serves; return whether it does."""
        pid = self.spawn_worker()
        worker = self.WORKERS[pid]
        give_up = time.monotonic() + START_SECONDS
        while not worker.is_serving and not self.is_ending:
            try:
                self.reap_workers()
            except HaltServer as end:
                self.log.warning("%s The others go on.", end.reason)
            self.murder_workers()
            if pid not in self.WORKERS or time.monotonic() > give_up:
                break
            time.sleep(CHECK_SECONDS)
        if worker.is_serving and pid in self.WORKERS:
            return True
        if pid in self.WORKERS and not self.is_ending:
            self.log.error(
                "A new worker does not serve after %.0f s: it is ended, and the others go on.", START_SECONDS
            )
            worker.state = _LEAVING
            self.kill_worker(pid, signal.SIGKILL)
        return False


class ProxyWorker(UvicornWorker):  # type: ignore[misc]  # the package has no types
    """A worker that shows its arbiter, in a byte of shared memory, whether it serves."""

    drain_seconds: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._shared = mmap.mmap(-1, 1)
        super().__init__(*arguments, **options)

    @property
    def state(self) -> int:
        """What it does, as it or its arbiter last wrote."""
        return self._shared[0]

    @state.setter
    def state(self, state: int) -> None:
        self._shared[0] = state

    @property
    def is_serving(self) -> bool:
        """Whether it has opened its parts and answers."""
        return self.state == _SERVING

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to stop."""
        return self.state == _LEAVING

    async def callback_notify(self) -> None:
        """Send the arbiter a heartbeat of the event loop; the first one comes when everything is open."""
        if self.state == _BOOTING:
            self.state = _SERVING
        await super().callback_notify()

    async def _serve(self) -> None:
        self.config.app = self.wsgi
        server = GracefulServer(self.config, self.drain_seconds, lambda: self.app.is_over, self._leave)
        self._install_sigquit_handler()
        await server.serve(sockets=self.sockets)
        if not server.started:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def _leave(self) -> None:
        self.state = _LEAVING


class _GunicornProxy(BaseApplication):  # type: ignore[misc]  # the package has no types
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._over = mmap.mmap(-1, 1)
        self._exited: list[int] = []
        """Workers whose metrics are still to be merged."""
        self._grpc_socket = None
        if settings.grpc_port:
            self._grpc_socket = bound_socket(settings.host, settings.grpc_port, is_shared=True)
        """Of all workers: what waits to be accepted when one ends is accepted by the others."""
        super().__init__()

    @property
    def is_over(self) -> bool:
        """Whether all workers end, and none takes over their socket."""
        return bool(self._over[0])

    def end(self) -> None:
        """Tell the workers so."""
        self._over[0] = 1
        if self._grpc_socket is not None:
            self._grpc_socket.close()

    def load_config(self) -> None:
        settings = self._settings
        options: dict[str, Any] = {
            "bind": f"{settings.host}:{settings.port}",
            "workers": settings.workers,
            "worker_class": _worker_class(settings),
            "backlog": BACKLOG,
            "keepalive": KEEP_ALIVE_SECONDS,
            "timeout": WORKER_TIMEOUT_SECONDS,
            "graceful_timeout": _end_seconds(settings),
            "preload_app": False,  # gRPC channels made before a fork crash the child
            "control_socket_disable": True,
            "child_exit": self._note_exited_worker,
            "loglevel": "warning",
        }
        if settings.tls_cert is not None:
            options |= {"certfile": str(settings.tls_cert), "keyfile": str(settings.tls_key)}
        for name, value in options.items():
            self.cfg.set(name, value)

    def load(self) -> Any:
        # Runs in the worker, after the fork.
        return create_app(self._settings, on_open=tune_runtime, grpc_socket=self._grpc_socket)

    def run(self) -> None:
        """Serve until the arbiter ends."""
        try:
            _Arbiter(self).run()
        except RuntimeError as problem:
            sys.exit(f"Error: {problem}")

    def merge_metrics_of_exited(self) -> None:
        """Merge the metrics files of exited workers; files that are being read wait for the next call."""
        self._exited = [pid for pid in self._exited if not merge_exited(_metrics_folder(), pid)]

    def _note_exited_worker(self, _arbiter: Any, worker: Any) -> None:
        self._exited.append(worker.pid)


def _worker_class(settings: Settings) -> type[ProxyWorker]:
    class Worker(ProxyWorker):
        CONFIG_KWARGS = uvicorn_options(settings)
        drain_seconds = settings.drain_seconds

    return Worker


def _end_seconds(settings: Settings) -> int:
    """Return how long a graceful shutdown may take: connections, calls, shadow calls, shipping, spans, and a second."""
    spans_seconds = FLUSH_SECONDS if wanted_traces(settings) is not None else 0.0
    return math.ceil(3 * settings.drain_seconds + settings.shadow_timeout_seconds + spans_seconds + 1)


def _metrics_folder() -> Path:
    return Path(os.environ["PROMETHEUS_MULTIPROC_DIR"])


def run(settings: Settings) -> int:
    """Serve with several worker processes until SIGTERM or SIGINT; returns the exit status."""
    arbiter = os.getpid()
    try:
        _GunicornProxy(settings).run()
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        if os.getpid() == arbiter:  # a worker that fails to start runs this, too
            shutil.rmtree(_metrics_folder(), ignore_errors=True)
    return 0
