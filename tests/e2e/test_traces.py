"""Traces of a real proxy: asked for by its environment, seen by a real model server, sent before it ends."""

import asyncio
import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest
from contract.servers import MODEL_NAME, running
from e2e.stack import a_stack, get, sql
from loopback.collector import Collector, collecting

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ENTITY = "canary-entity"
INPUTS = {
    "features": [{"name": name, "dtype": "float32"} for name in "abc"],
    "tensors": [{"name": "x", "dtype": "float32", "features": ["a", "b", "c"]}],
}


async def register(database_url: str, model_name: str, endpoint: str) -> None:
    """Make a version with one endpoint the champion of a model."""
    (row,) = await sql(
        database_url,
        "INSERT INTO ModelVersion"
        " (model_name, version, artifact_path, framework, input_schema, output_schema, backend, timeout_ms)"
        " VALUES ($1, '1', 'x', 'x', $2, $3, $4, 15000) RETURNING id",
        model_name, orjson.dumps(INPUTS).decode(), '{"tensor": "p"}', json.dumps({"model_name": MODEL_NAME}),
    )  # fmt: skip
    endpoints = "INSERT INTO ModelEndpoint (model_version_id, target) VALUES ($1, $2)"
    await sql(database_url, endpoints, row["id"], endpoint)
    policy = "INSERT INTO ServingPolicy (champion_version, model_name) VALUES ($1, $2)"
    await sql(database_url, policy, row["id"], model_name)


def ask(port: int, model_name: str, number: int = 0) -> tuple[int, dict[str, str]]:
    body = orjson.dumps({"entity_id": ENTITY, "inputs": {"a": number, "b": 2, "c": 3}})
    headers = {"traceparent": f"00-{TRACE}-{SPAN}-01", "content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/models/{model_name}/predict", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers)


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in log.read_bytes().splitlines() if line.startswith(b"{")]


def traced_lines_of(log: Path) -> list[dict[str, Any]]:
    return [line for line in lines_of(log) if "trace_id" in line]


def until_a_line_names_a_trace(log: Path, port: int) -> list[tuple[int, dict[str, str]]]:
    """Ask a version whose endpoint is not to be found, once a second, until it is such a call that looks for it.

    The proxy's own questions whether it is ready look for it, too.
    """
    answers = []
    give_up = time.monotonic() + 60
    while not traced_lines_of(log):
        assert time.monotonic() < give_up, log.read_text()
        answers.append(ask(port, "nowhere"))
        time.sleep(1.05)
    return answers


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_proxy_sends_the_traces_that_its_environment_asks_for_until_it_ends(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
):
    collector: Collector
    with collecting() as collector, a_stack(tmp_path, database_url) as stack:
        async with running() as (server,):
            await register(database_url, "linear", server.endpoint)
            await register(database_url, "nowhere", "no-such-host.invalid:1")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
            monkeypatch.setenv("OTEL_SERVICE_NAME", "the-proxy")
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
            monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
            port = await asyncio.to_thread(stack.start_proxy, workers=workers)

            answers = [await asyncio.to_thread(ask, port, "linear", number) for number in range(6)]
            refused = await asyncio.to_thread(until_a_line_names_a_trace, stack.processes["proxy"].log, port)
            before = len(collector.bodies)
            await asyncio.to_thread(get, f"http://127.0.0.1:{port}/livez")
            await asyncio.to_thread(stack.processes["proxy"].stop)

    servers = [span for span in collector.spans if span.kind == "server"]
    clients = [span for span in collector.spans if span.kind == "client"]
    assert ([status for status, _ in answers], {status for status, _ in refused}, before) == ([200] * 6, {503}, 0)
    assert len(servers) == 6 + len(refused)
    assert {(span.place.trace_id, span.parent_id, span.resource["service.name"]) for span in servers} == {
        (TRACE, SPAN, "the-proxy")
    }
    seen = {metadata["traceparent"] for metadata in server.metadata}
    assert seen == {f"00-{TRACE}-{span.place.span_id}-01" for span in clients}
    assert {span.parent_id for span in clients} == {span.place.span_id for span in servers if not span.failed}
    assert ENTITY.encode() not in b"".join(collector.bodies)
    named = {(line["trace_id"], line["span_id"]) for line in traced_lines_of(stack.processes["proxy"].log)}
    assert named
    assert named <= {tuple(headers["traceresponse"].split("-")[1:3]) for _, headers in refused}


async def test_a_proxy_that_nobody_asks_for_traces_writes_no_trace_ids(database_url: str, tmp_path: Path):
    with a_stack(tmp_path, database_url) as stack:
        async with running() as (server,):
            await register(database_url, "linear", server.endpoint)
            await register(database_url, "nowhere", "no-such-host.invalid:1")
            port = await asyncio.to_thread(stack.start_proxy)

            statuses = [(await asyncio.to_thread(ask, port, name))[0] for name in ("linear", "nowhere")]

    assert statuses == [200, 503]
    assert "traceparent" not in server.metadata[-1]
    lines = lines_of(stack.processes["proxy"].log)
    assert "endpoint.not_found" in {line["event"] for line in lines}
    assert traced_lines_of(stack.processes["proxy"].log) == []
