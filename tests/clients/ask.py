# mypy: ignore-errors
# (It runs in the clients' own venv; the libraries are not in ours.)
"""Runs in the clients' venv: call a proxy by every public way that it offers, and print what came of it as JSON.

python ask.py <address of the proxy> <file with rows>
"""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig
from tritonclient.utils import InferenceServerException

ADDRESS, ROWS = sys.argv[1], np.array(json.loads(Path(sys.argv[2]).read_text()), "<f4")
MODEL = "visits"
found = {}


def hexed(values):
    return np.ascontiguousarray(values, "<f4").tobytes().hex()


def tensor(module, values, *, binary):
    one = module.InferInput("input", list(values.shape), "FP32")
    one.set_data_from_numpy(values, binary_data=binary)
    return one


def ask_triton():
    client = triton.InferenceServerClient(ADDRESS, concurrency=4)
    found["live"], found["ready"] = client.is_server_live(), client.is_server_ready()
    found["model_ready"] = client.is_model_ready(MODEL), client.is_model_ready(MODEL, "1")
    found["server"] = client.get_server_metadata()["name"]
    found["metadata"] = client.get_model_metadata(MODEL)
    found["config"] = client.get_model_config(MODEL, "1")["max_batch_size"]
    found["index"] = [one["name"] for one in client.get_model_repository_index()]
    wanted = {
        "json": [triton.InferRequestedOutput("probabilities", binary_data=False)],
        "binary": [triton.InferRequestedOutput("probabilities", binary_data=True)],
        "no outputs": None,
    }
    row = ROWS[:1]
    for way, outputs in wanted.items():
        for binary in (False, True):
            result = client.infer(MODEL, [tensor(triton, row, binary=binary)], outputs=outputs, request_id="mine")
            assert result.get_response()["id"] == "mine"
            found[f"triton {way} {binary}"] = hexed(result.as_numpy("probabilities"))
    for coding in ("gzip", "deflate"):
        result = client.infer(
            MODEL,
            [tensor(triton, row, binary=True)],
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
            timeout=5_000_000,
            priority=1,
            parameters={"team": "a", "attempt": 2, "dry": False, "entity_id": "customer-42"},
        )
        found[f"triton {coding}"] = hexed(result.as_numpy("probabilities"))
    pinned = client.infer(MODEL, [tensor(triton, row, binary=True)], model_version="1")
    found["triton version"] = hexed(pinned.as_numpy("probabilities"))
    waiting = [client.async_infer(MODEL, [tensor(triton, row, binary=True)]) for _ in range(4)]
    found["triton async"] = sorted({hexed(one.get_result().as_numpy("probabilities")) for one in waiting})
    entities = triton.InferInput("entity_id", [len(ROWS), 1], "BYTES")
    names = [f"row-{place:05d}" for place in range(len(ROWS))]
    entities.set_data_from_numpy(np.array(names, object).reshape(-1, 1), binary_data=True)
    many = client.infer(MODEL, [tensor(triton, ROWS, binary=True), entities])
    found["triton rows"] = many.as_numpy("probabilities").shape
    found["triton who"] = many.get_response()["model_version"]
    statistics = client.get_inference_statistics(MODEL)["model_stats"]
    found["statistics"] = sum(one["inference_count"] for one in statistics)
    found["every statistics"] = [one["name"] for one in client.get_inference_statistics()["model_stats"]]
    told = [triton.InferRequestedOutput(name) for name in ("probabilities", "understudy_version")]
    one = client.infer(MODEL, [tensor(triton, row, binary=True)], outputs=told)
    found["told"] = one.as_numpy("understudy_version").tolist()[0].decode()
    for name, call in {
        "unknown model": lambda: client.infer("unknown", [tensor(triton, row, binary=True)]),
        "sequence": lambda: client.infer(MODEL, [tensor(triton, row, binary=True)], sequence_id=7),
        "wrong output": lambda: client.infer(
            MODEL, [tensor(triton, row, binary=True)], outputs=[triton.InferRequestedOutput("y")]
        ),
    }.items():
        try:
            call()
        except InferenceServerException as refused:
            found[name] = refused.status(), refused.message()
    client.close()


async def ask_triton_aio():
    async with triton_aio.InferenceServerClient(ADDRESS) as client:
        assert await client.is_server_ready()
        result = await client.infer(MODEL, [tensor(triton_aio, ROWS[:1], binary=True)])
        found["triton aio"] = hexed(result.as_numpy("probabilities"))


async def ask_kserve(protocol):
    base = f"http://{ADDRESS}"
    async with InferenceRESTClient(RESTConfig(protocol=protocol)) as client:
        found[f"kserve {protocol} live"] = await client.is_server_live(base)
        found[f"kserve {protocol} ready"] = await client.is_model_ready(base, MODEL)
        entity = {"x-entity-id": "customer-42"}
        if protocol == "v1":
            answer = await client.infer(base, {"instances": ROWS[:1].tolist()}, model_name=MODEL, headers=entity)
            found["kserve v1"] = hexed(answer["predictions"])
            return
        for binary in (False, True):
            one = InferInput("input", list(ROWS[:1].shape), "FP32")
            one.set_data_from_numpy(ROWS[:1], binary_data=binary)
            request = InferRequest(model_name=MODEL, infer_inputs=[one])
            answer = await client.infer(base, request, model_name=MODEL, headers=dict(entity))
            found[f"kserve v2 {binary}"] = hexed(answer.outputs[0].as_numpy())


ask_triton()
asyncio.run(ask_triton_aio())
asyncio.run(ask_kserve("v1"))
asyncio.run(ask_kserve("v2"))
sys.stdout.write(json.dumps(found))
