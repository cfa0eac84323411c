"""What a running proxy gives callers of other dialects, and pages: all outputs of a real server, and what is wrong."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx2
import orjson
from e2e.stack import a_stack, register, sql
from system.test_dialect_split import INFER, NAMES, ROW, V1, tensor

from understudy.adapters.dev_server.example_models import example_version

SHOP = "https://shop.example"
NATIVE = "/v1/models/visits/predict"
ASKS = {"origin": SHOP, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}


async def test_a_page_reads_all_outputs_of_a_real_server_and_what_is_wrong(
    tmp_path: Path, database_url: str, model_port: Callable[[str], int]
):
    output = {**example_version("visits", 1).output_schema, "tensor": "probabilities", "also": ["label"]}
    schema = orjson.dumps(output).decode()
    version = await register(database_url, 1, [model_port("visits:1")], output_schema=schema)
    await sql(database_url, "INSERT INTO ServingPolicy (model_name, champion_version) VALUES ('visits', $1)", version)
    body = {"entity_id": "ada", "inputs": dict(zip(NAMES, ROW, strict=True))}
    with a_stack(tmp_path, database_url) as stack:
        port = await asyncio.to_thread(lambda: stack.start_proxy(cors_origins=SHOP))
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            asked = await client.options(NATIVE, headers=ASKS)
            native = [await client.post(NATIVE, json=body, headers=one) for one in ({"origin": SHOP}, {})]
            whole = await client.post(INFER, json=tensor(2), headers={"origin": SHOP})
            rows = await client.post(V1, json={"instances": [ROW]})
            unknown = await client.post("/v1/models/vists/predict", json=body, headers={"origin": SHOP})

    assert asked.status_code == 200
    assert [one.status_code for one in (*native, whole, rows)] == [200] * 4
    assert native[0].json()["prediction"] == native[1].json()["prediction"]
    allowed = [one.headers.get("access-control-allow-origin") for one in (asked, *native, whole, rows, unknown)]
    assert allowed == [SHOP, SHOP, None, SHOP, None, SHOP]
    outputs = {one["name"]: one["data"] for one in whole.json()["outputs"]}
    pairs = zip(outputs["probabilities"][::2], outputs["probabilities"][1::2], strict=True)
    labels = [int(first < second) for first, second in pairs]
    assert list(outputs) == ["probabilities", "label"]
    assert [int(one) for one in outputs["label"]] == labels
    assert set(rows.json()["predictions"][0]) == {"probabilities", "label"}
    assert unknown.json()["detail"] == "no model 'vists' is served; did you mean 'visits'?"
