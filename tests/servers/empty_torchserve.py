# mypy: ignore-errors
# (It runs in the server's own venv; the libraries are not in ours.)
"""Runs in TorchServe's venv: write an artifact that it can load and one that it cannot, become it without models.

python empty_torchserve.py <folder> <gRPC port> <management port> <three free ports> [closed]

``closed``: with its model API off, as it is without a flag.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

HANDLER = """
import torch


class Handler:
    def initialize(self, context):
        self.model = torch.jit.load(context.system_properties["model_dir"] + "/model.pt")

    def handle(self, requests, context):
        return [self.one(request.get("data") or request.get("body")) for request in requests]

    def one(self, body):
        import json
        body = json.loads(body) if isinstance(body, (bytes, bytearray, str)) else body
        with torch.no_grad():
            return {"p": self.model(torch.tensor(body["x"]).reshape(1, -1))[0, 0].item()}
"""

folder, port, *other_ports = Path(sys.argv[1]), *sys.argv[2:7]
bin_folder = Path(sys.executable).parent
if not (folder / "expected.json").exists():
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(6, 1), torch.nn.Sigmoid())
    examples = torch.randn(20, 6)
    for name in ("good", "broken", "models", "work"):
        (folder / name).mkdir()
    torch.jit.script(model).save(str(folder / "work/model.pt"))
    (folder / "work/handler.py").write_text(HANDLER)
    archive = [
        bin_folder / "torch-model-archiver",
        "--model-name",
        "of-visits",
        "--version",
        "1.0",
        "--serialized-file",
    ]
    archive += [folder / "work/model.pt", "--handler", folder / "work/handler.py", "--export-path", folder / "good"]
    subprocess.run(archive, check=True)
    (folder / "broken/model.mar").write_bytes((folder / "good/of-visits.mar").read_bytes()[:2_000])
    with torch.no_grad():
        expected = {"rows": examples.tolist(), "scores": model(examples)[:, 0].tolist()}
    (folder / "expected.json").write_text(json.dumps(expected))
management, inference, metrics, grpc_management = other_ports
(folder / "config.properties").write_text(f"""
inference_address=http://127.0.0.1:{inference}
management_address=http://127.0.0.1:{management}
metrics_address=http://127.0.0.1:{metrics}
grpc_inference_address=127.0.0.1
grpc_inference_port={port}
grpc_management_address=127.0.0.1
grpc_management_port={grpc_management}
""")
environment = {
    **os.environ,
    "PATH": f"{bin_folder}:{os.environ['PATH']}",
    "TMPDIR": str(folder),  # its pid file lives there: one server for each folder
    "LOG_LOCATION": str(folder),
    "METRICS_LOCATION": str(folder),
}
command = ["torchserve", "--start", "--foreground", "--disable-token-auth", "--ncs"]
command += [] if sys.argv[7:] == ["closed"] else ["--enable-model-api"]
command += ["--model-store", str(folder / "models"), "--ts-config", str(folder / "config.properties")]
# What a killed one left: it starts no second time while its number is there.
(folder / ".model_server.pid").unlink(missing_ok=True)
os.execve(bin_folder / "torchserve", command, environment)
