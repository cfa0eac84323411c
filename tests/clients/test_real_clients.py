"""Clients of Triton and KServe, as their authors ship them, against a real proxy (``make test-clients``)."""

import asyncio
import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from e2e.stack import a_stack, register, sql

from understudy.adapters.dev_server.example_models import example_rows, example_version
from understudy.adapters.dev_server.onnx import OnnxModel
from understudy.adapters.embedded.loopback_ports import free_port

PYTHON, OVMS_PYTHON = (
    Path(__file__).parents[2] / venv / "bin" / "python" for venv in (".venv-clients", ".venv-clients-ovms")
)
SCRIPT, GRPC_SCRIPT, OVMS_SCRIPT = (Path(__file__).parent / name for name in ("ask.py", "ask_grpc.py", "ask_ovms.py"))
NAMES = [feature["name"] for feature in example_version("visits", 1).input_schema["features"]]
ROWS = [[float(row.inputs[name]) for name in NAMES] for row in example_rows("visits")[:20]]
WAYS = (
    *(f"triton {way} {binary}" for way in ("json", "binary", "no outputs") for binary in (False, True)),
    *(
        "triton gzip",
        "triton deflate",
        "triton version",
        "triton aio",
        "kserve v1",
        "kserve v2 False",
        "kserve v2 True",
    ),
)


async def prepare(database_url: str, ports: Sequence[int]) -> None:
    first, second = [await register(database_url, label, [port]) for label, port in zip((1, 2), ports, strict=True)]
    query = (
        "INSERT INTO ServingPolicy (model_name, champion_version, challenger_version, challenger_weight)"
        " VALUES ('visits', $1, $2, 50)"
    )
    await sql(database_url, query, first, second)


def outputs_of(label: int) -> str:
    """Return what a version's own model makes of the first row, as hex digits."""
    example = example_version("visits", label)
    outputs = OnnxModel(example.read(), example.label).run({"input": np.array(ROWS[:1], "<f4")})
    return outputs["probabilities"].tobytes().hex()


def asked(script: Path, *arguments: str | Path, python: Path = PYTHON) -> dict[str, Any]:
    """Return what a script of the clients' venv found."""
    done = subprocess.run([python, script, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_public_way_to_call_is_answered_with_the_models_own_bits(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    asyncio.run(prepare(database_url, [model_port("visits:1"), model_port("visits:2")]))
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    with a_stack(tmp_path, database_url) as stack:
        address = f"127.0.0.1:{stack.start_proxy()}"
        found = asked(SCRIPT, address, tmp_path / "rows.json")

    either = {outputs_of(1), outputs_of(2)}
    assert {way: found[way] for way in WAYS if found[way] not in either} == {}
    assert set(found["triton async"]) <= either
    assert found["triton version"] == outputs_of(1)
    assert found["live"] is found["ready"] is found["kserve v1 live"] is found["kserve v2 live"] is True
    assert found["model_ready"] == [True, True]
    assert found["kserve v1 ready"] is found["kserve v2 ready"] is True
    assert (found["server"], found["config"], found["index"]) == ("understudy", 256, ["visits", "visits"])
    assert found["metadata"]["outputs"] == [{"name": "probabilities", "datatype": "FP32", "shape": [-1, 2]}]
    assert (found["triton rows"], found["triton who"]) == ([20, 2], "mixed")
    assert [found[name][0] for name in ("unknown model", "sequence", "wrong output")] == ["404", "501", "422"]
    assert (found["statistics"] >= len(ROWS), found["every statistics"]) == (True, ["visits", "visits"])
    assert found["told"] in {"1", "2"}
    assert "has no output 'y'; it has: probabilities" in found["wrong output"][1]


def test_every_public_way_to_call_by_grpc_is_answered_with_the_models_own_bits(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    asyncio.run(prepare(database_url, [model_port("visits:1"), model_port("visits:2")]))
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    grpc_port = free_port()
    with a_stack(tmp_path, database_url) as stack:
        stack.start_proxy(grpc_port=grpc_port)
        triton, kserve = (
            asked(GRPC_SCRIPT, client, f"127.0.0.1:{grpc_port}", tmp_path / "rows.json")
            for client in ("triton", "kserve")
        )

    either = {outputs_of(1), outputs_of(2)}
    ways = ("named", "no outputs", "parameters", "version", "gzip", "deflate", "async", "aio")
    assert {way for way in ways if triton[f"triton {way}"] not in either} == set()
    assert {kserve["kserve False"], kserve["kserve True"]} <= either
    assert triton["triton version"] == outputs_of(1)
    assert triton["live"] is triton["ready"] is kserve["live"] is kserve["ready"] is kserve["model_ready"] is True
    assert triton["model_ready"] == [True, True]
    assert (triton["server"], triton["config"], triton["index"]) == ("understudy", 256, ["visits", "visits"])
    assert triton["metadata"] == [{"name": "probabilities", "datatype": "FP32", "shape": ["-1", "2"]}]
    assert (triton["rows"], triton["who"]) == ([20, 2], "mixed")
    assert (triton["statistics"] >= len(ROWS), triton["every statistics"]) == (True, ["visits", "visits"])
    assert triton["told"] in {"1", "2"}
    refused = {
        "unknown model": "NOT_FOUND",
        "sequence": "UNIMPLEMENTED",
        "wrong output": "INVALID_ARGUMENT",
    }
    assert {name: triton[name][0] for name in refused} == {name: f"StatusCode.{code}" for name, code in refused.items()}
    assert "has no output 'y'; it has: probabilities" in triton["wrong output"][1]


def test_a_client_of_tensorflow_serving_is_answered_with_the_models_own_bits(
    database_url: str, tmp_path: Path, model_port: Callable[[str], int]
) -> None:
    asyncio.run(prepare(database_url, [model_port("visits:1"), model_port("visits:2")]))
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    grpc_port = free_port()
    with a_stack(tmp_path, database_url) as stack:
        port = stack.start_proxy(grpc_port=grpc_port)
        addresses = f"127.0.0.1:{grpc_port}", f"127.0.0.1:{port}"
        found = asked(OVMS_SCRIPT, *addresses, tmp_path / "rows.json", python=OVMS_PYTHON)

    either = {outputs_of(1), outputs_of(2)}
    assert {found["grpc predict"], found["grpc version 0"], found["http predict"]} <= either
    assert found["grpc version 1"] == outputs_of(1)
    assert found["grpc rows"] == [len(ROWS), 2]
    assert found["grpc status"] == found["http status"] == {"1": "AVAILABLE", "2": "AVAILABLE"}
    assert found["grpc metadata"] == [["input"], ["probabilities"]]
    assert found["unknown model"] == "ModelNotFoundError"
