"""Proxy processes that end: cleanly, by SIGKILL, and with a call that is still under way."""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command import CommandLine
from e2e.stack import PREDICT_BODIES, VISITS, Stack, a_stack, register, sql

from understudy.adapters.embedded.loopback_ports import free_port

CALL = PREDICT_BODIES[0]


async def until(is_so: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not await is_so():
        assert time.monotonic() < give_up, "it never came true"
        await asyncio.sleep(0.05)


async def reported(database_url: str) -> set[str]:
    return {row["instance"] for row in await sql(database_url, "SELECT instance FROM ProxyInstance")}


async def wait_for_reports(database_url: str, count: int) -> None:
    async def are_there() -> bool:
        return len(await reported(database_url)) == count

    await until(are_there)


async def rolled_back(database_url: str) -> Any:
    """Return what the command line prints of a rollback."""
    arguments = ["rollback", "visits", "--yes", "--json", "--reason", "it burns"]
    done = await CommandLine(database_url).beside(*arguments)
    assert done.code in {0, 3}, done
    return done.json["rollback"]


@pytest.fixture
async def stack(tmp_path: Path, database_url: str, model_port: Callable[[str], int]) -> AsyncIterator[Stack]:
    """Model ``visits``: champion 1, which has 60 s for an answer, and challenger 2, whose model server is not there."""
    with a_stack(tmp_path, database_url) as started:
        champion = await register(database_url, 1, [model_port("visits:1")], timeout_ms=60_000)
        challenger = await register(database_url, 2, [1])
        await sql(
            database_url,
            "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version) VALUES ('visits', $1, $2)",
            champion,
            challenger,
        )
        yield started


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_proxy_that_is_stopped_leaves_no_row_behind(stack, database_url, workers):
    stack.start_proxy(workers=workers, wait_ready=False, drain_seconds=30)
    await wait_for_reports(database_url, workers)

    stack.processes["proxy"].signal(signal.SIGTERM)
    await asyncio.to_thread(stack.processes["proxy"].child.wait, 60)

    assert await reported(database_url) == set()


async def test_a_worker_that_is_killed_is_stale_after_its_time_and_every_rollback_says_so(stack, database_url):
    stack.start_proxy(workers=2, wait_ready=False)
    await wait_for_reports(database_url, 2)
    killed = stack.processes["proxy"].children()[0]

    os.kill(killed, signal.SIGKILL)
    await wait_for_reports(database_url, 3)  # its successor's is the third
    await sql(
        database_url,
        "UPDATE ProxyInstance SET seen_at = now() - INTERVAL '2 minutes' WHERE instance LIKE $1",
        f"%:{killed}",
    )
    await sql(database_url, "UPDATE ServingPolicy SET challenger_weight = 20")
    told = await rolled_back(database_url)

    assert told["did"] == "weight 0"
    assert (told["confirmed"]["proxies"], told["confirmed"]["proxies_on_generation"]) == (2, 2)
    assert told["confirmed"]["seconds"] is not None
    assert told["confirmed"]["silent"]["count"] == 1
    (silent,) = told["confirmed"]["silent"]["first"]
    assert silent["instance"].endswith(f":{killed}")
    assert 120 <= silent["seconds"] < 600


async def test_a_proxy_signs_off_when_its_last_call_is_answered_and_not_before(stack, database_url):
    metrics_port = free_port()
    target = f"127.0.0.1:{stack.start_model('visits:1', name='model')}"
    await sql(
        database_url,
        "UPDATE ModelEndpoint SET target = $1 FROM ModelVersion v WHERE v.id = model_version_id AND version = '1'",
        target,
    )
    stack.start_proxy(drain_seconds=60, metrics_port=metrics_port)
    await wait_for_reports(database_url, 1)
    proxy, model = stack.processes["proxy"], stack.processes["model"]

    async with httpx2.AsyncClient(timeout=60) as client:
        model.signal(signal.SIGSTOP)
        calling = asyncio.create_task(client.post(f"http://127.0.0.1:{stack.proxy_port}{VISITS}", content=CALL))
        await until(lambda: has_a_call(client, metrics_port))
        proxy.signal(signal.SIGTERM)
        await until(lambda: says_that_it_leaves(client, stack.proxy_port))
        while_it_drains = await reported(database_url), calling.done()
        model.signal(signal.SIGCONT)
        answer = await calling
    await asyncio.to_thread(proxy.child.wait, 60)

    assert (len(while_it_drains[0]), while_it_drains[1]) == (1, False)
    assert answer.status_code == 200
    assert await reported(database_url) == set()


async def has_a_call(client: httpx2.AsyncClient, metrics_port: int) -> bool:
    text = (await client.get(f"http://127.0.0.1:{metrics_port}/metrics")).text
    return any(re.match(r"\w*requests_in_flight(\{.*\})? 1(\.0)?$", line) for line in text.splitlines())


async def says_that_it_leaves(client: httpx2.AsyncClient, port: int) -> bool:
    answer = (await client.get(f"http://127.0.0.1:{port}/readyz")).json()
    return bool(answer["status"] == "draining")
