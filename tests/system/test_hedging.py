"""A model server stops under load, and another one answers: real processes."""

import asyncio
import signal
import urllib.request

from e2e.load import Load, run_load
from e2e.stack import PREDICT_BODIES, VISITS, a_stack, register, sql

from understudy.adapters.embedded.loopback_ports import free_port


def counted(metrics_port: int, outcome: str) -> float:
    """Return a proxy's own count of hedges."""
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    start = f'hedges_total{{model="visits",outcome="{outcome}",version="1"}}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


async def test_a_model_server_that_is_stopped_under_load_fails_no_caller_and_the_proxy_counts_its_hedges(
    tmp_path, database_url
):
    with a_stack(tmp_path, database_url) as stack:
        ports = [stack.start_model("visits:1", name=name) for name in ("one", "other")]
        version = await register(database_url, 1, ports, timeout_ms=1_500, cache_ttl_seconds=0)
        await sql(
            database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version
        )
        metrics_port = free_port()
        port = stack.start_proxy(metrics_port=metrics_port)
        load = Load()
        running_load = asyncio.create_task(
            run_load(port, VISITS, PREDICT_BODIES.__getitem__, per_second=60, seconds=8, load=load)
        )
        await asyncio.sleep(4)
        stack.processes["one"].signal(signal.SIGSTOP)
        await running_load
        counts = {name: await asyncio.to_thread(counted, metrics_port, name) for name in ("won", "lost", "refused")}

    print(f"{len(load.failed)} of {len(load.answers)} failed, hedges {counts}")
    assert len(load.failed) <= 3
    assert counts["won"] >= 1
