"""Everything that the benchmark measures: the proxies with all their parts, and their yardsticks.

Each part starts when it is first asked for, so that a section that runs alone waits for nothing else: servers under
test on their core, the rest on the other.
"""

import asyncio
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from e2e.stack import Process, Stack, a_stack, sql, wait_for_port

from loadtests.checkouts import Checkout
from loadtests.machine import LOAD_CORE, SERVER_CORE, on_core
from loadtests.nginx import Nginx, constant_upstreams, grpc_passing_proxy, splitting_proxy
from loadtests.plain_body import FEATURES
from loadtests.stub_model import OUTPUT
from understudy.adapters.embedded.loopback_ports import free_port
from understudy.adapters.embedded.postgres import EmbeddedPostgres
from understudy.adapters.embedded.valkey import EmbeddedValkey, find_server
from understudy.adapters.migrations import upgrade

BENCH, CACHED, PROMPT, LEAST = "bench", "cached", "prompt", "least"
"""Models: one without cache, one whose answers are kept, and one whose model server answers at once; that of the last
does so for next to no processor time."""
STUB_LATENCY_MS = 1.0
OUTPUT_SCHEMA = {"tensor": OUTPUT, "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}
REGISTER = """
    INSERT INTO ModelVersion
        (model_name, version, artifact_path, framework, protocol, input_schema, output_schema, cache_ttl_seconds)
    VALUES ($1, $2, 'none', 'none', $3, $4, $5, $6) RETURNING id
"""
CACHE_SECONDS = 36_000
_SHADOW_LIMIT = 512
"""So many that none is dropped at full load: the figures are of a shadow that sees every call."""
POLICY_SECONDS = 0.3
"""A change of the policy is in force long before this."""
_LOG_SECONDS = 30.0


class Cast(NamedTuple):
    """Who plays: flags of each model server by its name, and of each model the versions, the first its champion."""

    stubs: Mapping[str, Sequence[str]]
    versions: Mapping[str, Sequence[tuple[str, str, int]]]
    """By model: label, model server, seconds for which an answer is kept."""


BENCH_CAST = Cast(
    stubs={
        "champion": ["--latency-ms", str(STUB_LATENCY_MS)],
        "shadow": ["--latency-ms", str(STUB_LATENCY_MS)],
        "hanging": ["--hang"],
        "prompt": [],
        "least": ["--least"],
    },
    versions={
        BENCH: (("champion", "champion", 0), ("shadow", "shadow", 0), ("hanging", "hanging", 0)),
        CACHED: (("champion", "champion", CACHE_SECONDS),),
        PROMPT: (("champion", "prompt", 0),),
        LEAST: (("champion", "least", 0),),
    },
)


def input_schema(features: int) -> dict[str, Any]:
    """Return a schema of so many numbers between 0 and 1, by the names that ``predict.lua`` sends."""
    names = [f"feature_{number:02d}" for number in range(1, features + 1)]
    return {
        "features": [{"name": name, "dtype": "float32", "min": 0, "max": 1} for name in names],
        "tensors": [{"name": "input", "dtype": "float32", "features": names}],
        "batch": True,
    }


INPUT_SCHEMA = input_schema(len(FEATURES))


def path_of(model: str) -> str:
    """Return where a model's predict calls go."""
    return f"/v1/models/{model}/predict"


@dataclass(frozen=True)
class Proxy:
    """A running proxy."""

    port: int
    metrics_port: int
    pid: int

    def url(self, model: str = BENCH) -> str:
        """Return where a model's predict calls go."""
        return f"http://127.0.0.1:{self.port}{path_of(model)}"

    def metric(self, *prefixes: str) -> float:
        """Return the sum of the samples whose line begins so."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefixes))

    def await_log(self) -> None:
        """Wait until every row is in Postgres, so that its cost falls into the round that caused it."""
        give_up = time.monotonic() + _LOG_SECONDS
        while self.metric("prediction_log_spool_bytes") or self.metric("shadow_in_flight"):
            if time.monotonic() > give_up:
                raise RuntimeError(f"the log is not in Postgres {_LOG_SECONDS:.0f} s after the load ended")
            time.sleep(0.2)


class Served(NamedTuple):
    """A server that is no proxy of ours: where it listens, and its process."""

    url: str
    pid: int


class Scene:
    """What runs, and what starts when it is asked for.

    Args:
        folder: For data and logs; other accounts can read it.
        protocol: What the proxies speak to the stubs.
        opened: Stops everything.
        cast: Which models there are, and who serves them.
    """

    def __init__(self, folder: Path, protocol: str, opened: ExitStack, cast: Cast = BENCH_CAST) -> None:
        self.folder = folder
        self.cast = cast
        self.protocol = protocol
        self._opened = opened
        self._proxies: dict[str, Proxy] = {}

    @cached_property
    def postgres(self) -> EmbeddedPostgres:
        """Postgres with its default, durable settings."""
        server = EmbeddedPostgres(self.folder / "pg")
        self._opened.callback(server.remove)
        server.start()
        asyncio.run(upgrade(server.url))
        return server

    @property
    def postgres_pid(self) -> int:
        """Of the postmaster that runs now."""
        assert self.postgres.pid is not None
        return self.postgres.pid

    @cached_property
    def valkey_url(self) -> str | None:
        """A Valkey, if there is one on this machine."""
        return self._opened.enter_context(EmbeddedValkey()).url if find_server() is not None else None

    @cached_property
    def stack(self) -> Stack:
        """Processes of ours by name."""
        return self._opened.enter_context(a_stack(self.folder, self.postgres.url))

    @cached_property
    def stubs(self) -> dict[str, int]:
        """Ports of the model servers by name."""
        return {name: start_stub(self.stack, name, flags) for name, flags in self.cast.stubs.items()}

    @cached_property
    def versions(self) -> dict[str, dict[str, int]]:
        """The versions' ids by model and label; the first one is its model's champion."""
        return asyncio.run(_register(self.postgres.url, self.protocol, self.stubs, self.cast))

    def proxy(
        self, name: str = "proxy", *, checkout: Checkout | None = None, with_valkey: bool = False, **settings: Any
    ) -> Proxy:
        """Return the proxy of this name, which is started with these settings when it is asked for first.

        With a ``checkout`` it runs that checkout's source, and is one of two proxies of this name.
        """
        if checkout is not None:
            name, settings = f"{name}-{checkout.name}", {"environment": checkout.environment, **settings}
        if name not in self._proxies:
            assert self.versions
            self.stack.redis_url = self.valkey_url if with_valkey else None
            metrics_port = free_port()
            settings = {"shadow_limit": _SHADOW_LIMIT, "state_dir": self.folder / f"state-{name}", **settings}
            with on_core(SERVER_CORE):
                port = self.stack.start_proxy(name, metrics_port=metrics_port, **settings)
            self._proxies[name] = Proxy(port, metrics_port, self.stack.processes[name].pid)
        return self._proxies[name]

    @cached_property
    def nginx(self) -> Nginx:
        """A/B, A/B with mirror, and a constant answer, on three ports."""
        upstreams = self._opened.enter_context(constant_upstreams(self.folder / "upstreams"))
        with on_core(SERVER_CORE):
            return self._opened.enter_context(splitting_proxy(self.folder / "nginx", upstreams))

    @cached_property
    def grpc_nginx(self) -> Nginx:
        """What passes gRPC calls to the model server of the model ``least``."""
        with on_core(SERVER_CORE):
            return self._opened.enter_context(grpc_passing_proxy(self.folder / "grpc-nginx", self.stubs["least"]))

    @cached_property
    def echo(self) -> Served:
        """An empty ASGI application on the proxy's own server settings."""
        return self.serve("echo", "loadtests.echo", [])

    @cached_property
    def seed(self) -> Served:
        """The path as the seed codes it."""
        champion = self.versions[BENCH]["champion"]
        return self.serve("seed", "loadtests.seed_app", [self.postgres.url, str(champion), str(self.stubs["champion"])])

    def serve(self, name: str, module: str, arguments: Sequence[str]) -> Served:
        """Start a server whose first argument is its port, on the core of those under test."""
        port = free_port()
        with on_core(SERVER_CORE):
            self.stack.processes[name] = Process(name, ["-m", module, str(port), *arguments], self.folder)
        wait_for_port(port)
        return Served(f"http://127.0.0.1:{port}{path_of(BENCH)}", self.stack.processes[name].pid)

    def nginx_url(self, place: int, model: str = BENCH) -> str:
        """Return the address of one of nginx' three ports."""
        return f"http://127.0.0.1:{self.nginx.ports[place]}{path_of(model)}"

    def set_shadow(self, label: str | None) -> None:
        """Give every call of the model ``bench`` to this shadow from now on, or to none."""
        statement = "UPDATE ServingPolicy SET shadow_version = $1 WHERE model_name = $2"
        version = None if label is None else self.versions[BENCH][label]
        asyncio.run(sql(self.postgres.url, statement, version, BENCH))
        time.sleep(POLICY_SECONDS)

    def logged(self) -> dict[str, int]:
        """Return the proxies' rows of the log, counted by role and status; cache hits under ``hit`` once more."""
        query = (
            "SELECT role, status, cache_hit, count(*) AS n FROM PredictionLog WHERE prediction_id IS NOT NULL"
            " GROUP BY role, status, cache_hit"
        )
        counted: dict[str, int] = {}
        for row in asyncio.run(sql(self.postgres.url, query)):
            for kind in (f"{row['role']} {row['status']}", *(["hit"] if row["cache_hit"] else [])):
                counted[kind] = counted.get(kind, 0) + row["n"]
        return counted


@contextmanager
def a_scene(folder: Path, protocol: str, cast: Cast = BENCH_CAST) -> Iterator[Scene]:
    """Lend a scene in which nothing runs yet, and stop what was started in it; its thread stays on the load's core."""
    with ExitStack() as opened:
        opened.enter_context(on_core(LOAD_CORE))
        yield Scene(folder, protocol, opened, cast)


def start_stub(stack: Stack, name: str, flags: Sequence[str]) -> int:
    """Start a model server that computes nothing and return its port."""
    port = free_port()
    arguments = ["-m", "loadtests.stub_model", "--port", str(port), *flags]
    stack.processes[f"stub-{name}"] = Process(f"stub-{name}", arguments, stack.folder)
    wait_for_port(port)
    return port


async def _register(
    database_url: str, protocol: str, stubs: Mapping[str, int], cast: Cast
) -> dict[str, dict[str, int]]:
    schemas = [orjson.dumps(schema).decode() for schema in (INPUT_SCHEMA, OUTPUT_SCHEMA)]
    found: dict[str, dict[str, int]] = {}
    for model, versions in cast.versions.items():
        ids: dict[str, int] = {}
        for number, (label, stub, ttl_seconds) in enumerate(versions, start=1):
            (row,) = await sql(database_url, REGISTER, model, str(number), protocol, *schemas, ttl_seconds)
            ids[label] = row["id"]
            endpoint = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
            await sql(database_url, endpoint, ids[label], f"127.0.0.1:{stubs[stub]}")
        policy = "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)"
        await sql(database_url, policy, model, next(iter(ids.values())))
        found[model] = ids
    return found
