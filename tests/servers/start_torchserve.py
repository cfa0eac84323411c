# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TorchServe's venv: archive a torch model with a handler, write what it predicts, become TorchServe.

python start_torchserve.py <folder> <gRPC port> <four free ports>
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

HANDLER = '''
"""TorchServe handler: the native API gets {"x": [...]}, the Open Inference Protocol its own JSON."""
import json

import torch


class Handler:
    def initialize(self, context):
        self.model = torch.jit.load(context.system_properties["model_dir"] + "/model.pt")

    def handle(self, requests, context):
        return [self.one(request) for request in requests]

    def one(self, request):
        body = request.get("data") or request.get("body")
        body = json.loads(body) if isinstance(body, (bytes, bytearray, str)) else body
        if "inputs" not in body:
            return {"p": self.scores(torch.tensor(body["x"]).reshape(1, -1))[0]}
        tensor = body["inputs"][0]
        rows = torch.tensor(tensor["data"], dtype=torch.float32).reshape([int(size) for size in tensor["shape"]])
        scores = self.scores(rows)
        return {
            "model_name": "example",
            "model_version": "1.0",
            "id": body.get("id", ""),
            "parameters": {},
            "outputs": [
                {"name": "p", "datatype": "FP32", "shape": [len(scores)], "parameters": {}, "data": scores}
            ],
        }

    def scores(self, rows):
        with torch.no_grad():
            return self.model(rows)[:, 0].tolist()
'''

folder, port, *other_ports = Path(sys.argv[1]), *sys.argv[2:]
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(6, 1), torch.nn.Sigmoid())
examples = torch.randn(20, 6)
torch.jit.script(model).save(str(folder / "model.pt"))
(folder / "handler.py").write_text(HANDLER)
with torch.no_grad():
    expected = {"rows": examples.tolist(), "scores": model(examples)[:, 0].tolist()}
(folder / "expected.json").write_text(json.dumps(expected))
bin_folder = Path(sys.executable).parent
archive = [bin_folder / "torch-model-archiver", "--model-name", "example", "--version", "1.0", "--serialized-file"]
archive += [folder / "model.pt", "--handler", folder / "handler.py", "--export-path", folder]
subprocess.run(archive, check=True)
inference, management, metrics, grpc_management = (f"127.0.0.1:{other}" for other in other_ports)
(folder / "config.properties").write_text(f"""
inference_address=http://{inference}
management_address=http://{management}
metrics_address=http://{metrics}
grpc_inference_address=127.0.0.1
grpc_inference_port={port}
grpc_management_address=127.0.0.1
grpc_management_port={grpc_management.split(":")[1]}
ts_open_inference_protocol=true
default_workers_per_model=1
""")
environment = {
    **os.environ,
    "PATH": f"{bin_folder}:{os.environ['PATH']}",
    "TMPDIR": str(folder),  # its pid file lives there: one server for each folder
    "LOG_LOCATION": str(folder),
    "METRICS_LOCATION": str(folder),
}
command = ["torchserve", "--start", "--foreground", "--disable-token-auth", "--ncs", "--model-store", str(folder)]
command += ["--models", "example=example.mar", "--ts-config", str(folder / "config.properties")]
os.execve(bin_folder / "torchserve", command, environment)
