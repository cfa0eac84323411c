"""Everything that the benchmark measures, running: the proxy with all its parts, and its yardsticks."""

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
from e2e.stack import Process, Stack, a_stack, sql, wait_for_port

from loadtests.machine import LOAD_CORE, SERVER_CORE, on_core
from loadtests.nginx import constant_upstreams, splitting_proxy
from loadtests.stub_model import OUTPUT
from understudy.adapters.child_process import free_port
from understudy.adapters.embedded_postgres import EmbeddedPostgres
from understudy.adapters.embedded_valkey import EmbeddedValkey, find_server
from understudy.adapters.migrations import upgrade

PREDICT = "/v1/models/bench/predict"
STUB_LATENCY_MS = 1.0
_FEATURES = [f"feature_{number:02d}" for number in range(1, 14)]
_INPUT_SCHEMA = {
    "features": [{"name": name, "dtype": "float32", "min": 0, "max": 1} for name in _FEATURES],
    "tensors": [{"name": "input", "dtype": "float32", "features": _FEATURES}],
    "batch": True,
}
_OUTPUT_SCHEMA = {"tensor": OUTPUT, "dtype": "float32", "shape": [2], "score_index": 1, "min": 0, "max": 1}
_REGISTER = """
    INSERT INTO ModelVersion
        (model_name, version, artifact_path, framework, protocol, input_schema, output_schema, cache_ttl_seconds)
    VALUES ('bench', $1, 'none', 'none', $2, $3, $4, 0) RETURNING id
"""
_SHADOW_LIMIT = 512
"""So many that none is dropped at full load: the figures are of a shadow that sees every call."""
_POLICY_SECONDS = 0.3
"""A change of the policy is in force long before this."""
_LOG_SECONDS = 20.0


@dataclass(frozen=True)
class Scene:
    """What runs: where to send calls, whose processor time counts, and the versions' ids."""

    database_url: str
    proxy_url: str
    split_url: str
    mirror_url: str
    echo_url: str
    metrics_url: str
    proxy_pid: int
    nginx_pid: int
    echo_pid: int
    postgres_pid: int
    champion: int
    shadow: int
    hanging: int
    champion_port: int

    def set_shadow(self, version: int | None) -> None:
        """Give every call to this shadow from now on, or to none."""
        statement = "UPDATE ServingPolicy SET shadow_version = $1 WHERE model_name = 'bench'"
        asyncio.run(sql(self.database_url, statement, version))
        time.sleep(_POLICY_SECONDS)

    def metric(self, *prefixes: str) -> float:
        """Return the sum of the proxy's samples whose line begins so."""
        with urllib.request.urlopen(self.metrics_url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefixes))

    def await_log(self) -> None:
        """Wait until every row is in Postgres, so that its cost falls into the round that caused it."""
        give_up = time.monotonic() + _LOG_SECONDS
        while self.metric("prediction_log_spool_bytes") or self.metric("shadow_in_flight"):
            if time.monotonic() > give_up:
                raise RuntimeError(f"the log is not in Postgres {_LOG_SECONDS:.0f} s after the load ended")
            time.sleep(0.2)

    def logged(self) -> dict[str, int]:
        """Return the rows of the prediction log, counted by role and status."""
        rows = asyncio.run(
            sql(self.database_url, "SELECT role, status, count(*) AS n FROM PredictionLog GROUP BY role, status")
        )
        return {f"{row['role']} {row['status']}": row["n"] for row in rows}


@contextmanager
def a_scene(folder: Path, protocol: str) -> Iterator[Scene]:
    """Start everything, servers under test on their core and the rest on the other, and stop it again.

    Postgres runs with its default, durable settings; ``protocol`` is what the proxy speaks to the stubs.
    """
    with ExitStack() as opened:
        opened.enter_context(on_core(LOAD_CORE))
        postgres = opened.enter_context(EmbeddedPostgres(folder / "pg"))
        opened.callback(postgres.remove)
        valkey_url = opened.enter_context(EmbeddedValkey()).url if find_server() is not None else None
        upstreams = opened.enter_context(constant_upstreams(folder / "upstreams"))
        stack = opened.enter_context(a_stack(folder, postgres.url, valkey_url))
        ports = [
            start_stub(stack, name, flags)
            for name, flags in (
                ("champion", ["--latency-ms", str(STUB_LATENCY_MS)]),
                ("shadow", ["--latency-ms", str(STUB_LATENCY_MS)]),
                ("hanging", ["--hang"]),
            )
        ]
        champion, shadow, hanging = asyncio.run(_register(postgres.url, protocol, ports))
        metrics_port, echo_port = free_port(), free_port()
        with on_core(SERVER_CORE):
            proxy_port = stack.start_proxy(metrics_port=metrics_port, shadow_limit=_SHADOW_LIMIT)
            nginx = opened.enter_context(splitting_proxy(folder / "nginx", upstreams))
            stack.processes["echo"] = Process("echo", ["-m", "loadtests.echo", str(echo_port)], folder)
        wait_for_port(echo_port)
        assert postgres.pid is not None
        yield Scene(
            database_url=postgres.url,
            proxy_url=f"http://127.0.0.1:{proxy_port}{PREDICT}",
            split_url=f"http://127.0.0.1:{nginx.ports[0]}{PREDICT}",
            mirror_url=f"http://127.0.0.1:{nginx.ports[1]}{PREDICT}",
            echo_url=f"http://127.0.0.1:{echo_port}{PREDICT}",
            metrics_url=f"http://127.0.0.1:{metrics_port}/metrics",
            proxy_pid=stack.processes["proxy"].pid,
            nginx_pid=nginx.pid,
            echo_pid=stack.processes["echo"].pid,
            postgres_pid=postgres.pid,
            champion=champion,
            shadow=shadow,
            hanging=hanging,
            champion_port=ports[0],
        )


def start_stub(stack: Stack, name: str, flags: list[str]) -> int:
    port = free_port()
    arguments = ["-m", "loadtests.stub_model", "--port", str(port), *flags]
    stack.processes[name] = Process(f"stub-{name}", arguments, stack.folder)
    wait_for_port(port)
    return port


async def _register(database_url: str, protocol: str, ports: list[int]) -> list[int]:
    await upgrade(database_url)
    schemas = [orjson.dumps(schema).decode() for schema in (_INPUT_SCHEMA, _OUTPUT_SCHEMA)]
    ids: list[int] = []
    for label, port in enumerate(ports, start=1):
        rows = await sql(database_url, _REGISTER, str(label), protocol, *schemas)
        ids.append(rows[0]["id"])
        endpoint = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
        await sql(database_url, endpoint, ids[-1], f"127.0.0.1:{port}")
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('bench', $1)", ids[0])
    return ids
