# mypy: ignore-errors
# (It runs in the clients' own venv; the libraries are not in ours.)
"""Runs in the clients' venv: call a proxy's gRPC port by every public way of one client, and print what came of it.

python ask_grpc.py <triton or kserve> <address of the port> <file with rows>

The two clients cannot be in one process: both register messages of the same names.
"""

import asyncio
import json
import queue
import sys
from pathlib import Path

import numpy as np

CLIENT, ADDRESS = sys.argv[1:3]
ROWS = np.array(json.loads(Path(sys.argv[3]).read_text()), "<f4")
MODEL = "visits"
found = {}


def hexed(values):
    return np.ascontiguousarray(values, "<f4").tobytes().hex()


def ask_triton():
    import tritonclient.grpc as triton  # noqa: PLC0415 - see above

    def tensor(name, values, datatype="FP32"):
        one = triton.InferInput(name, list(values.shape), datatype)
        one.set_data_from_numpy(values)
        return one

    client = triton.InferenceServerClient(ADDRESS)
    found["live"], found["ready"] = client.is_server_live(), client.is_server_ready()
    found["model_ready"] = client.is_model_ready(MODEL), client.is_model_ready(MODEL, "1")
    found["server"] = client.get_server_metadata(as_json=True)["name"]
    found["metadata"] = client.get_model_metadata(MODEL, as_json=True)["outputs"]
    found["config"] = client.get_model_config(MODEL, "1", as_json=True)["config"]["max_batch_size"]
    found["index"] = [one["name"] for one in client.get_model_repository_index(as_json=True)["models"]]
    row = [tensor("input", ROWS[:1])]
    for way, outputs in {"named": [triton.InferRequestedOutput("probabilities")], "no outputs": None}.items():
        result = client.infer(MODEL, row, outputs=outputs, request_id="mine")
        assert result.get_response().id == "mine"
        found[f"triton {way}"] = hexed(result.as_numpy("probabilities"))
    parameters = {"team": "a", "attempt": 2, "dry": False, "entity_id": "customer-42"}
    result = client.infer(MODEL, row, timeout=5_000_000, client_timeout=10, priority=1, parameters=parameters)
    found["triton parameters"] = hexed(result.as_numpy("probabilities"))
    pinned = client.infer(MODEL, row, model_version="1", headers={"x-entity-id": "customer-42"})
    found["triton version"] = hexed(pinned.as_numpy("probabilities"))
    for coding in ("gzip", "deflate"):
        compressed = client.infer(MODEL, row, compression_algorithm=coding)
        found[f"triton {coding}"] = hexed(compressed.as_numpy("probabilities"))
    answers = queue.Queue()
    client.async_infer(MODEL, row, callback=lambda result, error: answers.put((result, error)))
    result, error = answers.get(timeout=30)
    assert error is None, error
    found["triton async"] = hexed(result.as_numpy("probabilities"))
    names = np.array([f"row-{place:05d}" for place in range(len(ROWS))], object).reshape(-1, 1)
    many = client.infer(MODEL, [tensor("input", ROWS), tensor("entity_id", names, "BYTES")])
    found["rows"] = many.as_numpy("probabilities").shape
    found["who"] = many.get_response().model_version
    statistics = client.get_inference_statistics(MODEL, as_json=True)["model_stats"]
    found["statistics"] = sum(int(one.get("inference_count", 0)) for one in statistics)
    found["every statistics"] = [one["name"] for one in client.get_inference_statistics(as_json=True)["model_stats"]]
    told = [triton.InferRequestedOutput(name) for name in ("probabilities", "understudy_version")]
    found["told"] = client.infer(MODEL, row, outputs=told).as_numpy("understudy_version").tolist()[0].decode()
    for name, call in {
        "unknown model": lambda: client.infer("unknown", row),
        "sequence": lambda: client.infer(MODEL, row, sequence_id=7),
        "wrong output": lambda: client.infer(MODEL, row, outputs=[triton.InferRequestedOutput("y")]),
    }.items():
        try:
            call()
        except triton.InferenceServerException as refused:
            found[name] = refused.status(), refused.message()
    client.close()


async def ask_triton_aio():
    import tritonclient.grpc.aio as triton  # noqa: PLC0415 - see above

    async with triton.InferenceServerClient(ADDRESS) as client:
        assert await client.is_server_ready()
        one = triton.InferInput("input", list(ROWS[:1].shape), "FP32")
        one.set_data_from_numpy(ROWS[:1])
        found["triton aio"] = hexed((await client.infer(MODEL, [one])).as_numpy("probabilities"))


async def ask_kserve():
    from kserve import InferenceGRPCClient, InferInput, InferRequest  # noqa: PLC0415 - see above

    client = InferenceGRPCClient(ADDRESS)
    found["live"], found["ready"] = await client.is_server_live(), await client.is_server_ready()
    found["model_ready"] = await client.is_model_ready(MODEL)
    for binary in (False, True):
        one = InferInput("input", list(ROWS[:1].shape), "FP32")
        one.set_data_from_numpy(ROWS[:1], binary_data=binary)
        request = InferRequest(model_name=MODEL, infer_inputs=[one])
        answer = await client.infer(request, headers=[("x-entity-id", "customer-42")])
        found[f"kserve {binary}"] = hexed(answer.outputs[0].as_numpy())
    await client.close()


if CLIENT == "triton":
    ask_triton()
    asyncio.run(ask_triton_aio())
else:
    asyncio.run(ask_kserve())
sys.stdout.write(json.dumps(found))
