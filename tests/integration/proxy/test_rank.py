"""Treatments ranked by a real ONNX model behind the project's own model server, over both protocols."""

import time
from typing import Any

import orjson
import pytest

from understudy.adapters.dev_server.catalog import ServeSpec, load_catalog
from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.server import InferenceServer
from understudy.adapters.memory.telemetry import MemoryTelemetry
from understudy.adapters.model_servers.connect import connect
from understudy.core.requests.predict import parse_predict
from understudy.core.requests.rank import parse_rank
from understudy.core.routing.policy import ModelVersion
from understudy.core.routing.policy_document import version_from_row
from understudy.serving.upstream.backend_pool import BackendPool
from understudy.serving.upstream.batching import BatchingCaller
from understudy.serving.upstream.cached_inference import CachedInference

OF_TREATMENTS = ("log_coinsurance", "has_deductible", "log_incentive", "log_expenditure_limit")
"""What an insurance plan offers; the rest is what the person is like."""
SECONDS = 30.0


def a_version(protocol: str, port: int) -> ModelVersion:
    example = example_version("visits", 1)
    schema: dict[str, Any] = orjson.loads(orjson.dumps(example.input_schema))
    for feature in schema["features"]:
        if feature["name"] in OF_TREATMENTS:
            feature["per"] = "treatment"
    row = {
        "id": 1,
        "version": "1",
        "status": "champion",
        "protocol": protocol,
        "endpoints": [f"127.0.0.1:{port}"],
        "input_schema": schema,
        "output_schema": example.output_schema,
        "backend": {"version": "1"},
        "deterministic": True,
        "cache_ttl_seconds": 0,
        "timeout_ms": 30_000,
    }
    return version_from_row("visits", row)


def a_caller(version: ModelVersion) -> BatchingCaller:
    return BatchingCaller(
        version, connect(version), concurrency=2, gap_seconds=0.002, batch_rows=64, queue_rows=1_000, now=time.monotonic
    )


@pytest.mark.parametrize("protocol", ["tfserving", "oip"])
async def test_a_thousand_treatments_have_the_scores_of_a_thousand_predict_calls(protocol):
    rows = [row.inputs for row in example_rows("visits")[:1_000]]
    person = {name: value for name, value in rows[0].items() if name not in OF_TREATMENTS}
    plans = [{name: row[name] for name in OF_TREATMENTS} for row in rows]
    ids = [f"plan-{number}" for number in range(len(plans))]
    columns = {"ids": ids, "inputs": {name: [plan[name] for plan in plans] for name in OF_TREATMENTS}}
    rank_request = parse_rank(orjson.dumps({"entity_id": "e", "inputs": person, "treatments": columns}))
    predict_requests = [
        parse_predict(orjson.dumps({"entity_id": "e", "inputs": {**person, **plan}})) for plan in plans[:40]
    ]

    async with InferenceServer(load_catalog([ServeSpec("visits", 1)])) as server:
        version = a_version(protocol, server.port)
        backends = BackendPool(a_caller)
        inference = CachedInference(
            backends, memory_cache=None, shared_cache=None, telemetry=MemoryTelemetry(), now=time.monotonic
        )
        deadline = time.monotonic() + SECONDS
        ranking, _ = await inference.infer(version, rank_request.assemble(version, None), deadline)
        predicted = [
            (await inference.infer(version, request.assemble(version, None), deadline))[0].score
            for request in predict_requests
        ]
        await backends.close()

    answer = orjson.loads(ranking.json)
    assert answer["treatments"] == len(answer["scores"]) == 1_000
    assert answer["scores"][:40] == pytest.approx(predicted, abs=1e-6)
    assert len(set(predicted)) > 1
    best = orjson.loads(ranking.logged)["best"]
    assert best[0]["score"] == max(answer["scores"]) == ranking.score
    assert best[0]["id"] == ids[answer["scores"].index(best[0]["score"])]
