"""What is attacked: proxies with all their parts, a real gRPC server for each model, and what can be seen of them."""

import asyncio
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import orjson
from e2e.stack import Process, Stack, a_stack, wait_for_port

from loadtests.scene import start_stub
from rigs.fuzz.bystander import READY
from rigs.fuzz.cases import KEY_ID, SECRET
from rigs.fuzz.models import VISITS, attacked_models
from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import free_port

RECEIVE_SECONDS = 2.0
"""Of a request that never becomes whole; shorter than usual, so that many fit into an attack."""
LOG_SECONDS = 60.0
_SCOPES = ["predict", "outcomes", "read", "operate"]
_REGISTER = """
    INSERT INTO ModelVersion
        (model_name, version, artifact_path, framework, input_schema, output_schema, cache_ttl_seconds)
    VALUES ($1, '1', 'none', 'none', $2, $3, $4) RETURNING id
"""


class Usage(NamedTuple):
    """What the proxy's processes have."""

    rss_bytes: int
    descriptors: int
    peak_bytes: int = 0
    """The most memory since :meth:`World.forget_peak`."""


class Ports(NamedTuple):
    """Where things listen: the proxy's HTTP API, its gRPC port and its metrics, and a server that does nothing."""

    http: int
    grpc: int
    metrics: int
    echo: int


class World:
    """A proxy under attack, seen from outside.

    Args:
        process: Its first process.
        ports: Its own, and that of a server to compare it with.
        database_url: The database in which its log is.
    """

    def __init__(self, process: Process, ports: Ports, database_url: str) -> None:
        self._process = process
        self.port, self.grpc_port, self._metrics_port, self._echo_port = ports
        self._database_url = database_url

    @property
    def workers(self) -> list[int]:
        """Process ids of those that answer."""
        return self._process.children() or [self._process.pid]

    def usage(self) -> Usage:
        """Return memory and descriptors of all workers together."""
        rss = descriptors = peak = 0
        for pid in self.workers:
            status = Path(f"/proc/{pid}/status").read_text()
            rss += int(status.partition("VmRSS:")[2].split()[0]) * 1024
            peak += int(status.partition("VmHWM:")[2].split()[0]) * 1024
            descriptors += sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
        return Usage(rss, descriptors, peak)

    def forget_peak(self) -> None:
        """Have the kernel begin anew with the most memory that each worker had."""
        for pid in self.workers:
            Path(f"/proc/{pid}/clear_refs").write_text("5")

    def series(self) -> dict[str, float]:
        """Return every series of the metrics with its value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def logged_ids(self, told: AbstractSet[str]) -> list[str]:
        """Return the ids of all logged predictions, once those told are among them or :data:`LOG_SECONDS` have passed.

        How many bytes wait is as of the shipper's last look: rows of the last moment may be neither there nor counted.
        """
        query = "SELECT prediction_id::text FROM PredictionLog WHERE prediction_id IS NOT NULL AND role <> 'shadow'"
        give_up = time.monotonic() + LOG_SECONDS
        while True:
            waits = self._spooled_bytes()
            ids = [row[0] for row in self.query(query)]
            if (told <= set(ids) and not waits) or time.monotonic() > give_up:
                return ids
            time.sleep(0.3)

    def _spooled_bytes(self) -> float:
        return sum(value for name, value in self.series().items() if name.startswith("prediction_log_spool_bytes"))

    def query(self, statement: str) -> list[Any]:
        """Return rows of the database."""
        return asyncio.run(_fetch(self._database_url, statement))

    @contextmanager
    def bystander(self) -> Iterator[dict[str, Any]]:
        """Let a harmless caller ask meanwhile; what it saw is there afterwards."""
        row = example_rows()[0]
        body = orjson.dumps({"entity_id": row.entity_id, "inputs": row.inputs}).decode()
        arguments = [sys.executable, "-m", "rigs.fuzz.bystander", str(self.port), str(self._echo_port), VISITS, body]
        seen: dict[str, Any] = {}
        with subprocess.Popen(arguments, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == READY
            try:
                yield seen
            finally:
                child.send_signal(signal.SIGTERM)
                out, _ = child.communicate(timeout=60)
        seen.update(orjson.loads(out))


@contextmanager
def a_world(folder: Path, database_url: str, redis_url: str | None, *, workers: int) -> Iterator[World]:
    """Start a proxy with so many workers on a migrated, empty database, and stop it."""
    settings: Mapping[str, Any] = {
        "workers": workers,
        "receive_seconds": RECEIVE_SECONDS,
        "feature_table": "fuzz_features",
        "metrics_port": free_port(),
        "grpc_port": free_port(),
        "shadow_limit": 64,
    }
    with a_stack(folder, database_url, redis_url) as stack:
        asyncio.run(_register(database_url, _model_ports(stack)))
        port = stack.start_proxy("proxy", **settings)
        echo_port = free_port()
        stack.processes["echo"] = Process("echo", ["-m", "loadtests.echo", str(echo_port)], folder)
        wait_for_port(echo_port)
        ports = Ports(port, settings["grpc_port"], settings["metrics_port"], echo_port)
        world = World(stack.processes["proxy"], ports, database_url)
        give_up = time.monotonic() + LOG_SECONDS
        while len(world.workers) < workers and time.monotonic() < give_up:
            time.sleep(0.1)
        yield world


def _model_ports(stack: Stack) -> dict[str, int]:
    stub = start_stub(stack, "stub", [])
    return {model.name: stack.start_model("visits:1") if model.real else stub for model in attacked_models()}


async def _register(database_url: str, ports: Mapping[str, int]) -> None:
    connection = await asyncpg.connect(database_url, timeout=20)
    try:
        await connection.execute("CREATE TABLE fuzz_features (model_name TEXT, entity_id TEXT, features JSONB)")
        for model in attacked_models():
            schemas = [orjson.dumps(schema).decode() for schema in (model.input_schema, model.output_schema)]
            version = await connection.fetchval(_REGISTER, model.name, *schemas, model.cache_seconds)
            await connection.execute(
                "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)",
                version,
                f"127.0.0.1:{ports[model.name]}",
            )
            await connection.execute(
                "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)", model.name, version
            )
        await connection.execute(
            "INSERT INTO ApiKey (id, sha256, scopes) VALUES ($1, $2, $3)",
            KEY_ID,
            sha256(SECRET.encode()).hexdigest(),
            _SCOPES,
        )
    finally:
        await connection.close()


async def _fetch(database_url: str, statement: str) -> list[Any]:
    connection = await asyncpg.connect(database_url, timeout=20)
    try:
        return list(await connection.fetch(statement))
    finally:
        await connection.close()
