"""Real processes for the end-to-end tests: model servers, proxies, and a database with the example models."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import asyncpg
import orjson

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.embedded.loopback_ports import free_port

VISITS = "/v1/models/visits/predict"
PATIENT_MS = 4_000
"""A deadline that no call of these tests misses on a busy machine, and that comes before callers give up."""
PREDICT_BODIES = [orjson.dumps({"entity_id": row.entity_id, "inputs": row.inputs}) for row in example_rows()]


class Process:
    """A child process with its output in a file; stopped by its own pid.

    ``ulimit`` has options of the shell's command of that name, such as ``-n 1024``.
    ``python`` may be another release's.
    """

    def __init__(
        self,
        name: str,
        arguments: list[str],
        folder: Path,
        env: dict[str, str] | None = None,
        ulimit: str = "",
        *,
        python: str = sys.executable,
    ) -> None:
        self.log = folder / f"{name}.log"
        limited = ["/bin/sh", "-c", f'ulimit {ulimit} && exec "$0" "$@"'] if ulimit else []
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [*limited, python, *arguments], stdout=log, stderr=log, env={**os.environ, **(env or {})}
            )

    @property
    def pid(self) -> int:
        return self.child.pid

    def children(self) -> list[int]:
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in text.split()]

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def stop(self) -> None:
        if self.child.poll() is not None:
            return
        self.child.send_signal(signal.SIGCONT)
        self.child.terminate()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            for pid in self.children():
                os.kill(pid, signal.SIGKILL)
            self.child.kill()
            self.child.wait(5)


def get(url: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, None
    except (OSError, ValueError):
        return 0, None


class Stack:
    """Everything a test started, by name."""

    def __init__(self, folder: Path, database_url: str, redis_url: str | None = None) -> None:
        self.folder = folder
        self.database_url = database_url
        self.redis_url = redis_url
        self.processes: dict[str, Process] = {}
        self.proxy_port = 0

    def start_model(self, *specs: str, name: str | None = None, port: int | None = None) -> int:
        """Start a model server for ``--serve`` specs and return its port.

        Versions that a test calls equally fast share a server: of two processes on a busy machine one may have less of
        the processor for half a minute, which is a difference that a rollout is right to see.
        """
        port = port or free_port()
        served = [argument for spec in specs for argument in ("--serve", spec)]
        arguments = ["-m", "understudy.entrypoints.modelserver", *served, "--port", str(port)]
        self.processes[name or specs[0]] = Process(f"model-{port}", arguments, self.folder)
        wait_for_port(port)
        return port

    def start_proxy(
        self,
        name: str = "proxy",
        *,
        workers: int = 1,
        wait_ready: bool = True,
        module: str = "understudy.entrypoints.cli",
        environment: Mapping[str, str] | None = None,
        ulimit: str = "",
        python: str = sys.executable,
        **options: Any,
    ) -> int:
        """Start a proxy and return its port.

        ``options`` are settings, ``module`` is what reads ``serve proxy``, ``environment`` is what else it finds there,
        ``ulimit`` and ``python`` are as of ``Process``.
        """
        self.proxy_port = int(options.pop("port", 0)) or free_port()
        env = {
            "DATABASE_URL": self.database_url,
            "UNDERSTUDY_PORT": str(self.proxy_port),
            "UNDERSTUDY_METRICS_PORT": str(free_port()),
            "UNDERSTUDY_STATE_DIR": str(self.folder / "state"),
            "UNDERSTUDY_WORKERS": str(workers),
            **{f"UNDERSTUDY_{key.upper()}": str(value) for key, value in options.items()},
            **(environment or {}),
        }
        if self.redis_url is not None:
            env["REDIS_URL"] = self.redis_url
        self.processes[name] = Process(name, ["-m", module, "serve", "proxy"], self.folder, env, ulimit, python=python)
        if wait_ready:
            self.wait_ready(name)
        return self.proxy_port

    def wait_ready(self, name: str = "proxy", seconds: float = 90, poll_seconds: float = 0.05) -> None:
        deadline = time.monotonic() + seconds
        while get(f"http://127.0.0.1:{self.proxy_port}/readyz")[0] != 200:
            process = self.processes[name]
            if process.child.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the proxy did not become ready:\n{process.log.read_text()[-3000:]}")
            time.sleep(poll_seconds)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.stop()


def wait_for_port(port: int, seconds: float = 60, host: str = "127.0.0.1") -> None:
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.03)
        else:
            return


@contextmanager
def a_stack(folder: Path, database_url: str, redis_url: str | None = None) -> Iterator[Stack]:
    stack = Stack(folder, database_url, redis_url)
    try:
        yield stack
    finally:
        stack.stop()


@contextmanager
def shared_models(folder: Path) -> Iterator[Callable[[str], int]]:
    """Model servers that many tests call and none stops: gives the port for a ``--serve`` spec, started when asked."""
    with a_stack(folder, "") as stack:
        yield cache(stack.start_model)


async def register(
    database_url: str, label: int, endpoints: list[int], model_name: str = "visits", **columns: Any
) -> int:
    """Insert a version of an example model by plain SQL and return its id; tests of deadlines give ``timeout_ms``."""
    example = example_version(model_name, label)
    values = {
        "model_name": model_name,
        "version": str(label),
        "artifact_path": f"s3://models/{model_name}/{label}/model.onnx",
        "framework": "sklearn",
        "input_schema": orjson.dumps(example.input_schema).decode(),
        "output_schema": orjson.dumps(example.output_schema).decode(),
        "timeout_ms": PATIENT_MS,
        **columns,
    }
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    connection = await asyncpg.connect(database_url)
    try:
        query = f"INSERT INTO ModelVersion ({', '.join(values)}) VALUES ({places}) RETURNING id"
        version_id: int = await connection.fetchval(query, *values.values())
        for port in endpoints:
            await connection.execute(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)", version_id, f"127.0.0.1:{port}"
            )
    finally:
        await connection.close()
    return version_id


async def sql(database_url: str, query: str, *values: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(database_url)
    try:
        rows: list[asyncpg.Record] = await connection.fetch(query, *values)
        return rows
    finally:
        await connection.close()


async def logged_ids(database_url: str, expected: set[str], seconds: float = 60) -> list[str]:
    """Return the prediction ids of all answered rows, once all ``expected`` ones are there or time ran out."""
    deadline = time.monotonic() + seconds
    while True:
        rows = await sql(database_url, "SELECT prediction_id::text AS id FROM PredictionLog WHERE role <> 'shadow'")
        ids = [row["id"] for row in rows]
        if expected <= set(ids) or time.monotonic() > deadline:
            return ids
        await asyncio.sleep(0.3)
