"""Calls in other servers' protocols, through a real proxy to real model servers and into a real Postgres."""

import asyncio
import gzip
import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from e2e.stack import VISITS, a_stack, logged_ids, register, sql
from numpy.typing import NDArray

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.core.routing.route import bucket_of

ROWS = example_rows("visits")[:40]
NAMES = [feature["name"] for feature in example_version("visits", 1).input_schema["features"]]
WEIGHT = 50


class Answered(NamedTuple):
    """What the proxy sent."""

    headers: Mapping[str, str]
    body: bytes


def tensor_of(rows: Sequence[Any]) -> NDArray[np.float32]:
    return np.array([[row.inputs[name] for name in NAMES] for row in rows], "<f4")


def post(port: int, path: str, body: Any, headers: Mapping[str, str] | None = None) -> Answered:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, dict(headers or {}))
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return Answered({name.lower(): value for name, value in answer.headers.items()}, answer.read())


def as_bytes(values: NDArray[np.float32], **parameters: Any) -> tuple[bytes, dict[str, str]]:
    """Return the Open Inference Protocol's body with binary tensors, and its headers."""
    content = values.tobytes()
    tensor = {"name": "input", "datatype": "FP32", "shape": values.shape}
    inputs = [{**tensor, "parameters": {"binary_data_size": len(content)}}]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True, **parameters}}).encode()
    return head + content, {"Inference-Header-Content-Length": str(len(head))}


async def prepare(database_url: str, ports: Sequence[int]) -> None:
    ids = [await register(database_url, label, [port]) for label, port in zip((1, 2, 3), ports, strict=True)]
    await sql(
        database_url,
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight,"
        " shadow_version, shadow_percent) VALUES ('visits', $1, $2, $3, $4, 100)",
        ids[0], ids[1], WEIGHT, ids[2],
    )  # fmt: skip


def outputs_of(label: int, row: Any) -> bytes:
    """Return what the model itself makes of one row, bit for bit."""
    example = example_version("visits", label)
    return OnnxModel(example.read(), example.label).run({"input": tensor_of([row])})["probabilities"].tobytes()


def test_each_row_is_routed_shadowed_logged_once_and_answered_with_the_models_own_bits(
    database_url: str, tmp_path: Path, model_port
):
    asyncio.run(prepare(database_url, [model_port(f"visits:{label}") for label in (1, 2, 3)]))
    challengers = {row.entity_id for row in ROWS if bucket_of("visits", row.entity_id) < WEIGHT}
    with a_stack(tmp_path, database_url) as stack:
        # In memory no answer is kept: each call is to reach the model, alone in its batch.
        port = stack.start_proxy(memory_cache_bytes=0)
        native = [post(port, VISITS, {"entity_id": row.entity_id, "inputs": row.inputs}) for row in ROWS[:10]]
        single = [
            post(port, "/v2/models/visits/infer", *with_entity(as_bytes(tensor_of([row])), row)) for row in ROWS[:10]
        ]
        named = [{"input": values, "entity_id": row.entity_id} for values, row in zip(rows_of(ROWS), ROWS, strict=True)]
        together = post(port, "/v1/models/visits:predict", {"instances": named})
        packed = gzip.compress(json.dumps({"inputs": [{"name": name, "datatype": kind, "shape": [2], "data": values}
            for name, kind, values in columns_of(ROWS[:2])]}).encode())  # fmt: skip
        drawn = post(port, "/v2/models/visits/infer", packed, {"content-encoding": "gzip"})
        prediction_ids = [answer.headers["x-prediction-id"] for answer in (*native, *single, together, drawn)]
        asyncio.run(logged_ids(database_url, set(prediction_ids)))
    # The proxy has ended, and shipped what it had.
    rows = asyncio.run(
        sql(
            database_url,
            "SELECT prediction_id::text AS id, entity_id, role, reason, score, input_hash, v.version"
            " FROM PredictionLog p JOIN ModelVersion v ON v.id = p.model_version_id ORDER BY predicted_at",
        )
    )

    answered = [row for row in rows if row["role"] != "shadow"]
    by_id = {row["id"]: row for row in answered}
    assert len(answered) == len(by_id) == 10 + 10 + len(ROWS) + 2
    assert {row["id"] for row in rows if row["role"] == "shadow"} == by_id.keys()
    of_entity = [row for row in answered if not row["entity_id"].startswith("call:")]
    assert {row["entity_id"] for row in of_entity if row["role"] == "challenger"} == challengers
    assert {row["reason"] for row in answered} == {"bucket"}
    for ours, theirs, source in zip(native, single, ROWS[:10], strict=True):
        one, other = (by_id[answer.headers["x-prediction-id"]] for answer in (ours, theirs))
        same = ("entity_id", "role", "reason", "version", "score", "input_hash")
        assert [one[name] for name in same] == [other[name] for name in same]
        length = int(theirs.headers["inference-header-content-length"])
        assert theirs.body[length:] == outputs_of(int(other["version"]), source)
    predictions = json.loads(together.body)["predictions"]
    scores = {row["entity_id"]: row["score"] for row in of_entity}
    assert np.allclose([values[1] for values in predictions], [scores[row.entity_id] for row in ROWS], atol=1e-6)
    assert together.headers["x-model-version"] == "mixed"
    assert len({row["entity_id"] for row in answered if row["entity_id"].startswith("call:")}) == 1


def rows_of(rows: Sequence[Any]) -> list[list[float]]:
    return [list(map(float, values)) for values in tensor_of(rows)]


def columns_of(rows: Sequence[Any]) -> list[tuple[str, str, list[Any]]]:
    """Return each feature as a column: the champion's own names, datatypes and values."""
    kinds = {"float32": "FP32", "int64": "INT64"}
    features = example_version("visits", 1).input_schema["features"]
    return [(one["name"], kinds[one["dtype"]], [row.inputs[one["name"]] for row in rows]) for one in features]


def with_entity(sent: tuple[bytes, dict[str, str]], row: Any) -> tuple[bytes, dict[str, str]]:
    return sent[0], {**sent[1], "x-entity-id": row.entity_id}
