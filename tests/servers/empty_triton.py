# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in Triton's venv: write an artifact that it can load and one that it cannot, become Triton without models.

The wheel of pytriton has the server itself with its Python backend. It is started as NVIDIA's image starts it.

python empty_triton.py <folder> <gRPC port> <HTTP port> [mode of model control]
"""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytriton

MODEL = """
import numpy as np
import triton_python_backend_utils as utils

WEIGHTS = np.linspace(-1, 1, 6, dtype=np.float32)


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            rows = utils.get_input_tensor_by_name(request, "x").as_numpy()
            scores = (1 / (1 + np.exp(-(rows @ WEIGHTS)))).reshape(-1, 1).astype(np.float32)
            answers.append(utils.InferenceResponse([utils.Tensor("p", scores)]))
        return answers
"""
CONFIG = """
name: "what_the_author_called_it"
backend: "python"
max_batch_size: 64
input [{ name: "x" data_type: TYPE_FP32 dims: [6] }]
output [{ name: "p" data_type: TYPE_FP32 dims: [1] }]
"""

folder, port, http_port = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
mode = sys.argv[4] if len(sys.argv) > 4 else "explicit"
server = Path(pytriton.__file__).parent / "tritonserver"
if not (folder / "expected.json").exists():
    for name, text in (("good", MODEL), ("broken", "raise ValueError('no weights')")):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "1/model.py").write_text(text)
        (folder / name / "config.pbtxt").write_text(CONFIG)
    (folder / "models").mkdir()
    shutil.copytree(server / "backends", folder / "backends")
    stub = server / f"python_backend_stubs/3.{sys.version_info.minor}/triton_python_backend_stub"
    shutil.copy(stub, folder / "backends/python")
    weights = np.linspace(-1, 1, 6, dtype=np.float32)
    examples = np.random.default_rng(7).normal(size=(20, 6)).astype(np.float32)
    expected = {"rows": examples.tolist(), "scores": (1 / (1 + np.exp(-(examples @ weights)))).tolist()}
    (folder / "expected.json").write_text(json.dumps(expected))
options = {
    "model-repository": folder / "models",
    "model-control-mode": mode,
    "backend-directory": folder / "backends",
    "grpc-address": "127.0.0.1",
    "grpc-port": port,
    "http-address": "127.0.0.1",
    "http-port": http_port,
    "allow-metrics": "false",
}
environment = {**os.environ, "LD_LIBRARY_PATH": str(server.parents[1] / "nvidia_pytriton.libs")}
arguments = ["tritonserver", *(f"--{name}={value}" for name, value in options.items())]
os.execve(server / "bin/tritonserver", arguments, environment)
