"""A version whose endpoint is a name of several servers: from its registration to a real proxy's answer and metrics."""

import asyncio
import json
import time
import urllib.request
from pathlib import Path

from command import CommandLine
from e2e.stack import a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows
from understudy.adapters.embedded.loopback_ports import free_port

INPUTS = json.dumps(example_rows("visits")[42].inputs)


def replicas_known(metrics_port: int) -> float:
    """Wait for the gauge, which a proxy sets each second, and return it."""
    until = time.monotonic() + 30
    begins = 'replicas_known{model="visits",version="1"} '
    while time.monotonic() < until:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=10) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(begins):
                    return float(line.removeprefix(begins))
        time.sleep(0.05)
    raise AssertionError("the proxy does not say how many replicas it knows")


def test_a_name_is_registered_checked_and_called_at_each_of_its_addresses(
    understudy: CommandLine, database_url: str, tmp_path: Path, model_port
):
    port, metrics_port = model_port("visits:1"), free_port()
    version_id = asyncio.run(register(database_url, 1, [], backend='{"discover": true}'))
    added = understudy("version", "add-endpoint", "visits", "1", f"localhost:{port}")
    asyncio.run(sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ($1, $2)",
                    "visits", version_id))  # fmt: skip
    checked = understudy("version", "check", "visits", "1")
    doctor = understudy("doctor")
    shown = understudy("version", "show", "visits", "1")
    with a_stack(tmp_path, database_url) as stack:
        proxy_port = stack.start_proxy(auth=False, metrics_port=metrics_port)
        where = {"UNDERSTUDY_PROXY_URL": f"http://127.0.0.1:{proxy_port}"}
        given = understudy("predict", "visits", "--entity", "e", "--inputs", INPUTS, **where)
        known = replicas_known(metrics_port)

    assert [done.code for done in (added, checked, shown, given)] == [0] * 4, (checked, given)
    assert f"localhost:{port} at 127.0.0.1 says in" in " ".join(checked.out.split())
    assert f"localhost:{port} at 127.0.0.1 in" in " ".join(doctor.out.split())
    assert f"localhost:{port}; each address of a name is one" in " ".join(shown.out.split())
    assert given.out.startswith("score 0.8438902   visits 1, champion")
    assert known >= 1


def test_an_endpoint_with_a_scheme_is_refused_and_the_setting_is_named(understudy: CommandLine, database_url: str):
    asyncio.run(register(database_url, 1, []))

    refused = understudy("version", "add-endpoint", "visits", "1", "dns://models.internal:8500")

    assert refused.code == 7
    assert "--backend discover=true" in " ".join(refused.said.split())
